;;; pollux.el --- Gemini CLI's companion  -*- lexical-binding: t; -*-

;; Version: 1.0
;; Package-Requires: ((emacs "27.1"))
;; Keywords: tools, convenience
;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Pollux tells Gemini CLI which files are open in Emacs, where point is and
;; what is selected, and shows the changes that the CLI proposes as a diff that
;; you edit, accept or reject.  It needs the program `pollux'.
;;
;; `pollux-mode' turns it on.  `pollux-open' starts Gemini CLI in a terminal
;; beside; a CLI in any other terminal of this Emacs finds its companion too.
;; In a diff: C-c C-c or C-x C-s accepts, C-c C-k rejects, and so does killing
;; the buffer; C-c C-n and C-c C-p go from hunk to hunk, C-c C-u undoes the
;; hunk at point, C-c C-a takes it again, C-c C-e opens Ediff.
;;
;; A change can be decided on once it has been in view for half a second in which
;; you pressed no key in it, so that a key meant for another change decides
;; nothing.  If you kill its buffer earlier, the change goes on waiting:
;; `pollux-next' shows it again.
;;
;; All that is not of Emacs is done by `pollux ide', which this file speaks
;; JSON-RPC with.

;;; Code:

(require 'cl-lib)
(require 'jsonrpc)
(require 'project)
(require 'subr-x)

(defvar term-home-marker)
(declare-function term-mode "term")
(declare-function term-char-mode "term")
(declare-function term-exec "term")
(declare-function flymake-diagnostics "flymake")
(declare-function flymake-diagnostic-beg "flymake")
(declare-function flymake-diagnostic-text "flymake")
(declare-function flymake-diagnostic-type "flymake")
(declare-function flycheck-error-line "ext:flycheck")
(declare-function flycheck-error-level "ext:flycheck")
(declare-function flycheck-error-message "ext:flycheck")
(declare-function ediff-buffers "ediff")
(defvar flymake-mode)
(defvar flycheck-current-errors)
(defvar ediff-quit-hook)

(defgroup pollux nil
  "Gemini CLI's companion."
  :group 'tools
  :prefix "pollux-")

(defcustom pollux-command nil
  "The program `pollux'.
If nil, the one that `pollux install' noted, else the one on the variable
`exec-path'."
  :type '(choice (const :tag "Find it" nil) file))

(defcustom pollux-cli nil
  "The program, with arguments, that `pollux-open' runs.
If nil, gemini, or what npx fetches."
  :type '(choice (const :tag "Gemini CLI" nil) (repeat string)))

(defcustom pollux-layout 'auto
  "How a diff is shown.
With `auto', side by side where there are 100 columns for it."
  :type '(choice (const auto) (const side-by-side) (const inline)))

(defcustom pollux-include-ignored nil
  "Whether the CLI is told of ignored files and likely secrets too."
  :type 'boolean)

(defcustom pollux-review-page nil
  "Whether diffs also wait on a page in the browser."
  :type 'boolean)

(defcustom pollux-terminal-width 0.4
  "How much of the frame's width the CLI's terminal gets."
  :type 'number)

(defface pollux-added '((t :inherit diff-added :extend t))
  "Lines that a proposal adds.")

(defface pollux-removed '((t :inherit diff-removed :extend t))
  "Lines that a proposal takes out.")

(defvar pollux-diff-opened-hook nil "Run when a diff has come.")
(defvar pollux-diff-ready-hook nil "Run when the diff in view can be decided on.")
(defvar pollux-diff-closed-hook nil "Run when a diff was decided on.")

;;;; The process

(defconst pollux--version "1.0")
(defconst pollux--protocol 1)
(defconst pollux--tries 5 "Failed starts in a row before giving up.")

(defvar pollux--connection nil)
(defvar pollux--info nil "The answer to initialize, while the companion is up.")
(defvar pollux--again nil "Port and token of a companion that crashed.")
(defvar pollux--stopping nil)
(defvar pollux--started nil)
(defvar pollux--failures 0)
(defvar pollux--clis nil "The connected CLIs.")
(defvar pollux--directory (or command-line-default-directory default-directory)
  "Where Emacs was started.")

(defun pollux-ready-p ()
  "Whether the companion is up."
  (and pollux--info t))

(defun pollux--note (format &rest args)
  "Put FORMAT with ARGS into the log."
  (with-current-buffer (get-buffer-create " *pollux log*")
    (goto-char (point-max))
    (insert (format-time-string "%T ") (apply #'format format args) "\n")
    (when (> (buffer-size) 100000)
      (delete-region (point-min) (/ (point-max) 2)))))

(defun pollux--say (format &rest args)
  "Show the user FORMAT with ARGS."
  (let ((text (apply #'format format args)))
    (pollux--note "%s" text)
    (message "pollux: %s" text)))

(defconst pollux--here (file-name-directory (or load-file-name buffer-file-name "")))

(defun pollux--program ()
  "The program to start."
  (let ((noted (expand-file-name "command" pollux--here)))
    (or pollux-command
        (and (file-readable-p noted)
             (with-temp-buffer
               (insert-file-contents noted)
               (string-trim (buffer-string))))
        "pollux")))

(defun pollux--set-env (env)
  "Set ENV, a plist of variables, for programs to be started."
  (cl-loop for (name value) on env by #'cddr
           do (setenv (substring (symbol-name name) 1) value)))

(defun pollux--bool (value)
  "VALUE for JSON."
  (if value t :json-false))

(defun pollux--request (method params callback)
  "Call METHOD with PARAMS; CALLBACK gets the error's text, or nil, and the result."
  (if (not pollux--connection)
      (funcall callback "Pollux is not running: M-x pollux-start" nil)
    (jsonrpc-async-request
     pollux--connection method params
     :success-fn (lambda (result) (funcall callback nil result))
     :error-fn (lambda (err) (funcall callback (plist-get err :message) nil))
     :timeout-fn (lambda () (funcall callback "Pollux does not answer" nil)))))

(defun pollux--call (method params)
  "Call METHOD with PARAMS and return the result; a failure is a `user-error'."
  (unless (pollux-ready-p)
    (user-error "Pollux is not running: M-x pollux-start, and M-x pollux-log if that fails"))
  (condition-case err
      (jsonrpc-request pollux--connection method params :timeout 5)
    (jsonrpc-error
     (user-error "Pollux: %s" (or (alist-get 'jsonrpc-error-message (cddr err))
                                  (cadr err))))))

(defun pollux--notify (method params)
  "Tell Pollux METHOD with PARAMS."
  (when (pollux-ready-p)
    (jsonrpc-notify pollux--connection method params)))

(defun pollux--on-request (_connection method params)
  "Answer Pollux's request of METHOD with PARAMS."
  (pcase method
    ('diff/open (pollux--open-diff params) (make-hash-table))
    ('diff/close (let ((text (pollux--close-diff (plist-get params :id) (plist-get params :reason))))
                   (if text (list :content text) (make-hash-table))))
    (_ (jsonrpc-error :code -32601 :message (format "unknown method %s" method)))))

(defun pollux--on-notification (_connection method params)
  "Hear METHOD with PARAMS from Pollux."
  (pcase method
    ('diff/changed (pollux--diff-changed params))
    ('file/changed (pollux--reload (plist-get params :path)))
    ('clients (setq pollux--clis (append (plist-get params :clients) nil))
              (force-mode-line-update t))
    ('env (pollux--set-env (plist-get params :env)))
    ('message (pollux--say "%s" (plist-get params :text)))))

(defun pollux-start ()
  "Start Pollux, unless it is up."
  (interactive)
  (setq pollux--failures 0)
  (if (and pollux--connection pollux--stopping)
      (setq pollux--stopping 'restart)
    (pollux--launch)))

(defun pollux--launch ()
  "Start `pollux ide'."
  (let ((program (pollux--program)))
    (cond
     (pollux--connection)
     ((not (executable-find program))
      (pollux--say "`%s' is not installed, or not on the PATH: see the commentary of pollux.el" program))
     (t
      (setq pollux--stopping nil
            pollux--started (float-time))
      (let* ((errors (get-buffer-create " *pollux errors*"))
             (connection
              (make-instance
               'jsonrpc-process-connection
               :name "pollux"
               :process (lambda ()
                          (with-current-buffer errors (erase-buffer))
                          (let ((default-directory pollux--directory))
                            (make-process :name "pollux" :command (list program "ide")
                                          :connection-type 'pipe :coding 'utf-8-emacs-unix
                                          :noquery t :stderr errors)))
               :request-dispatcher #'pollux--on-request
               :notification-dispatcher #'pollux--on-notification
               :on-shutdown #'pollux--ended)))
        (when-let ((pipe (get-buffer-process errors)))
          (set-process-query-on-exit-flag pipe nil))
        ;; No copy of all that is said: it holds the user's texts.
        (ignore-errors
          (if (slot-exists-p connection '-events-buffer-scrollback-size)
              (setf (slot-value connection '-events-buffer-scrollback-size) 0)
            (setf (slot-value connection '-events-buffer-config) '(:size 0 :format full))))
        (setq pollux--connection connection)
        (with-demoted-errors "pollux: %S" ; it has ended already; `pollux--ended' says why
         (pollux--request
         'initialize
         (list :protocol pollux--protocol
               :client (list :name "pollux.el" :version pollux--version)
               :editor (list :name "emacs" :displayName "Emacs")
               :pid (emacs-pid)
               :roots (vconcat (pollux--roots))
               :diff t
               :settings (append (list :includeIgnored (pollux--bool pollux-include-ignored)
                                       :reviewPage (pollux--bool pollux-review-page))
                                 pollux--again))
         #'pollux--initialized)))))))

(defun pollux--initialized (err result)
  "Go on after initialize with ERR or RESULT."
  (cond
   ((and err (not (and pollux--connection (jsonrpc-running-p pollux--connection))))) ; `pollux--ended' says why
   (err
    (pollux--say "%s" err)
    (pollux-stop))
   ((not (equal (plist-get result :protocol) pollux--protocol))
    (pollux--say "this package and `%s' do not go together: update both" (pollux--program))
    (pollux-stop))
   (t
    (setq pollux--info result
          pollux--again (list :port (plist-get result :port) :token (plist-get result :token)))
    (pollux--set-env (plist-get result :env))
    (pollux--note "up: pollux %s, port %s" (plist-get (plist-get result :server) :version)
                  (plist-get result :port))
    (pollux--context-start))))

(defun pollux--ended (connection)
  "The process of CONNECTION has ended: start it again, unless it was stopped."
  (let ((was pollux--info)
        (code (process-exit-status (jsonrpc--process connection)))
        (last (with-current-buffer (get-buffer-create " *pollux errors*")
                (string-trim (buffer-string)))))
    (setq pollux--connection nil pollux--info nil pollux--clis nil)
    (pollux--context-stop)
    (pollux--lost)
    (force-mode-line-update t)
    (when (eq pollux--stopping 'restart)
      (run-at-time 0 nil #'pollux--launch))
    (unless pollux--stopping
      (pollux--note "pollux ended with code %s. %s" code last)
      (when (and was (> (- (float-time) pollux--started) 10))
        (setq pollux--failures 0))
      (cl-incf pollux--failures)
      (cond
       ((and (eql code 2) (not was))
        (pollux--say "`%s' is too old for this package: install a newer one" (pollux--program)))
       ((>= pollux--failures pollux--tries)
        (pollux--say "it keeps ending: %s (M-x pollux-start tries again)" last))
       (t
        (run-at-time (if (= pollux--failures 1) 0 (* 0.25 (expt 2 pollux--failures))) nil
                     #'pollux--launch))))))

(defun pollux-stop ()
  "Stop Pollux.
CLIs that wait are told that their changes were rejected."
  (interactive)
  (setq pollux--stopping t)
  (when (and pollux--connection (jsonrpc-running-p pollux--connection))
    (process-send-eof (jsonrpc--process pollux--connection))))

;;;; Context

(defvar pollux--files nil "The open files: an alist of buffers and paths.")
(defvar pollux--files-due t)
(defvar pollux--roots-due t)
(defvar pollux--focused (make-hash-table :test 'eq :weakness 'key))
(defvar pollux--active nil "The buffer that has, or had, the focus.")
(defvar pollux--active-state nil "Its cursor and selection, a plist.")
(defvar pollux--push-timer nil)
(defvar pollux--roots-sent nil)
(defvar pollux--projects (make-hash-table :test 'equal) "Roots by directory.")
(defconst pollux--max-selection 20000 "In characters; Pollux cuts it exactly.")

(defun pollux--project-root (dir)
  "The root of the project that DIR is in, or nil."
  (let ((known (gethash dir pollux--projects 'unknown)))
    (if (not (eq known 'unknown))
        known
      (puthash dir
               (when-let ((project (ignore-errors (project-current nil dir))))
                 (directory-file-name
                  (expand-file-name
                   (if (fboundp 'project-root)
                       (project-root project)
                     (car (with-no-warnings (project-roots project)))))))
               pollux--projects))))

(defun pollux--roots ()
  "The workspace: the projects of the open files, and where Emacs was started."
  (let ((roots (list (or (pollux--project-root pollux--directory)
                         (directory-file-name (expand-file-name pollux--directory))))))
    (dolist (file (sort (mapcar #'cdr pollux--files) #'string<))
      (when-let ((root (pollux--project-root (file-name-directory file))))
        (cl-pushnew root roots :test #'equal)))
    (seq-filter #'file-directory-p (nreverse roots))))

(defun pollux--file (buffer)
  "The path of BUFFER, if it is a file on disk."
  (when-let ((file (buffer-local-value 'buffer-file-name buffer)))
    (and (not (file-remote-p file))
         (file-regular-p file)
         (expand-file-name file))))

(defun pollux--rebuild ()
  "Look for the open files."
  (setq pollux--files-due nil
        pollux--roots-due t
        pollux--files (cl-loop for buffer in (buffer-list)
                               for file = (pollux--file buffer)
                               when file collect (cons buffer file))))

(defun pollux--utf16-column ()
  "The column of point in UTF-16 code units, from 1."
  (let ((from (line-beginning-position)) (to (point)))
    (+ 1 (- to from)
       (if (= (- to from) (- (position-bytes to) (position-bytes from)))
           0 ; ASCII, which may be long
         (save-excursion
           (goto-char from)
           (how-many "[\x10000-\x10FFFF]" from to))))))

(defun pollux--clean (text)
  "TEXT without what is no Unicode."
  (replace-regexp-in-string "[^\0-\x10FFFF]" "\xFFFD" (substring-no-properties text) t t))

(defun pollux--sample ()
  "Look at the selected window.
In a terminal, or a buffer that is no file, all stays as it was: the CLI's
user is asking about the file beside."
  (when pollux--files-due (pollux--rebuild))
  (unless (assq pollux--active pollux--files)
    (setq pollux--active nil))
  (let ((buffer (window-buffer (selected-window))))
    (when (assq buffer pollux--files)
      (puthash buffer (truncate (* 1000 (float-time))) pollux--focused)
      (setq pollux--active buffer)
      (with-current-buffer buffer
        (save-restriction
          (widen)
          (setq pollux--active-state
                (list :cursor (list :line (line-number-at-pos)
                                    :character (pollux--utf16-column))
                      :selection (if (use-region-p)
                                     (pollux--selection)
                                   ""))))))))

(defun pollux--selection ()
  "The selected text, rectangles too."
  (if (bound-and-true-p rectangle-mark-mode)
      (pollux--clean (mapconcat #'identity (extract-rectangle (region-beginning) (region-end)) "\n"))
    (pollux--clean (buffer-substring-no-properties
                    (region-beginning)
                    (min (region-end) (+ (region-beginning) pollux--max-selection))))))

(defvar pollux--last nil "What `pollux--moved-p' saw last.")

(defun pollux--moved-p ()
  "Look at the selected window; nil if nothing has happened since the last time."
  (let ((window (selected-window)))
    (unless (minibufferp (window-buffer window))
      (with-current-buffer (window-buffer window)
        (let ((now (list (current-buffer) (point) (use-region-p) (mark t)
                         (buffer-chars-modified-tick) pollux--files-due pollux--clis)))
          (unless (and (equal now pollux--last) (not pollux--files-due))
            (setq pollux--last now)
            (pollux--sample)
            t))))))

(defun pollux--push ()
  "Send what is open."
  (setq pollux--push-timer nil)
  (when (and (pollux-ready-p) (pollux--moved-p))
    (let ((roots (if pollux--roots-due (pollux--roots) pollux--roots-sent)))
      (setq pollux--roots-due nil)
      (pollux--notify
       'context/update
       (append
        (list :files
              (cl-loop for (buffer . path) in pollux--files vconcat
                       (list (append (list :path path :focused (gethash buffer pollux--focused 0))
                                     (when (eq buffer pollux--active)
                                       (append '(:active t) pollux--active-state))))))
        (unless (equal roots pollux--roots-sent)
          (setq pollux--roots-sent roots)
          (list :roots (vconcat roots))))))))

(defun pollux--soon (&rest _)
  "Send what is open when Emacs has done with what it is doing."
  (unless pollux--push-timer
    (setq pollux--push-timer (run-at-time 0 nil #'pollux--push))))

(defun pollux--listed (&rest _)
  "The list of files may have changed."
  (setq pollux--files-due t)
  (pollux--soon))

(defconst pollux--hooks
  '((post-command-hook . pollux--soon)
    (pre-command-hook . pollux--pressed)
    (post-command-hook . pollux--command-done)
    (window-selection-change-functions . pollux--soon)
    (window-buffer-change-functions . pollux--listed)
    (find-file-hook . pollux--listed)
    (kill-buffer-hook . pollux--listed)
    (after-save-hook . pollux--listed)
    (after-set-visited-file-name-hook . pollux--listed)))

(defun pollux--context-start ()
  "Follow what happens."
  (setq pollux--roots-sent (pollux--roots)
        pollux--last nil)
  (pcase-dolist (`(,hook . ,function) pollux--hooks)
    (add-hook hook function))
  (pollux--listed))

(defun pollux--context-stop ()
  "Follow no longer."
  (pcase-dolist (`(,hook . ,function) pollux--hooks)
    (remove-hook hook function)))

;;;; Diffs

;; One is on the screen, the others wait.  A view never takes the focus, so
;; that keys go on reaching the terminal that the user types in.
;;
;; A change can be decided on once it has been in view for a while without a key
;; for it: one may have been meant for another change.  Afterwards it stays so
;; while it is in view.

(cl-defstruct pollux--diff
  "A change that a CLI proposes."
  id path client original exists state proposed
  text       ; as it is now, while no buffer holds it
  form       ; how the buffer's text goes to disk: :dos, :bom
  buffer left windows inline hunks pause
  settled    ; since when it can be decided on
  (looks 0)  ; how often the time until then has started
  ended finished lost hiding deciding dismissed)

(defvar pollux--diffs nil "The diffs that wait, the oldest first.")
(defvar pollux--shown nil "The one on the screen.")
(defvar pollux--superseded nil "A view that waits for the proposal that takes its place.")
(defvar-local pollux--this nil "The diff that a buffer shows.")
(put 'pollux--this 'permanent-local t) ; the user may choose another mode

(defconst pollux--narrow 100 "Columns that two texts side by side need.")

(defun pollux-waiting ()
  "The diffs that wait for you, the oldest first."
  pollux--diffs)

(defun pollux--current ()
  "The diff that a command means: that of the buffer, else the one shown."
  (or (buffer-local-value 'pollux--this (window-buffer (selected-window)))
      pollux--shown
      (car pollux--diffs)))

(defun pollux--find (id)
  "The diff with ID."
  (cl-find id pollux--diffs :key #'pollux--diff-id :test #'equal))

(defun pollux--name (d)
  "A short name of the file of D."
  (file-relative-name (pollux--diff-path d) (car (pollux--roots))))

(defun pollux--fill (text)
  "Make TEXT the buffer's, and return its form on disk."
  (let ((bom (string-prefix-p "\xFEFF" text))
        (lf (cl-count ?\n text))
        (dos nil))
    (when bom (setq text (substring text 1)))
    (when (and (> lf 0)
               (= lf (with-temp-buffer (insert text) (how-many "\r\n" (point-min) (point-max)))))
      (setq dos t
            text (replace-regexp-in-string "\r\n" "\n" text t t)))
    (erase-buffer)
    (insert text)
    (goto-char (point-min))
    (list :dos dos :bom bom)))

(defun pollux--text (d)
  "The text of D as it is to be on disk."
  (if (not (buffer-live-p (pollux--diff-buffer d)))
      (pollux--diff-text d)
    (let ((text (with-current-buffer (pollux--diff-buffer d)
                  (save-restriction (widen) (pollux--clean (buffer-string)))))
          (form (pollux--diff-form d)))
      (when (plist-get form :dos)
        (setq text (replace-regexp-in-string "\n" "\r\n" text t t)))
      (if (and (plist-get form :bom) (not (string-empty-p text)))
          (concat "\xFEFF" text)
        text))))

(defvar pollux-diff-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "C-c C-c") #'pollux-accept)
    (define-key map (kbd "C-c C-k") #'pollux-reject)
    (define-key map (kbd "C-c C-n") #'pollux-next-hunk)
    (define-key map (kbd "C-c C-p") #'pollux-previous-hunk)
    (define-key map (kbd "C-c C-a") #'pollux-accept-hunk)
    (define-key map (kbd "C-c C-u") #'pollux-undo-hunk)
    (define-key map (kbd "C-c C-e") #'pollux-ediff)
    map)
  "Keys of `pollux-diff-mode'.")

(define-minor-mode pollux-diff-mode
  "A change that a CLI proposes."
  :lighter " Review"
  :keymap pollux-diff-mode-map)

(defvar inhibit-interaction)
(defvar org-inhibit-startup)
(defvar org-resource-download-policy)

(defun pollux--set-up ()
  "Make the buffer one of a diff, whatever its mode."
  (setq-local require-final-newline nil
              mode-require-final-newline nil
              before-save-hook nil
              after-save-hook nil
              buffer-invisibility-spec nil ; nothing of it may be hidden
              write-contents-functions (list #'pollux--write)
              buffer-offer-save nil)
  (add-hook 'kill-buffer-hook #'pollux--killed nil t)
  (add-hook 'after-change-functions #'pollux--edited nil t)
  (add-hook 'post-command-hook #'pollux--follow nil t)
  (add-hook 'change-major-mode-after-body-hook #'pollux--set-up nil t)
  (pollux-diff-mode 1))
(put 'pollux--set-up 'permanent-local-hook t)
(put 'pollux--killed 'permanent-local-hook t)

(defun pollux--make-buffer (d name text)
  "A buffer for D, called NAME, with TEXT, and its form."
  (let ((buffer (generate-new-buffer name))
        (path (pollux--diff-path d))
        form)
    (with-current-buffer buffer
      (buffer-disable-undo)
      (setq form (pollux--fill text)
            pollux--this d)
      ;; The mode for its looks; its hooks, what the text says of itself as a
      ;; file, and questions, are for real files.
      (let ((buffer-file-name path)
            (enable-local-variables nil)
            (enable-dir-local-variables nil)
            (inhibit-interaction t)
            (org-inhibit-startup t)
            (org-resource-download-policy nil))
        (with-demoted-errors "pollux: %S"
          (delay-mode-hooks (set-auto-mode t))))
      (with-demoted-errors "pollux: %S"
        (font-lock-mode 1))
      (pollux--set-up)
      (setq default-directory (file-name-as-directory
                               (if (file-directory-p (file-name-directory path))
                                   (file-name-directory path)
                                 pollux--directory))))
    (cons buffer form)))

(defun pollux--write ()
  "Accept, in place of writing the buffer's file.
A buffer that was given a file's name, as \\[write-file] does, is a copy, and
is written."
  (unless buffer-file-name
    (pollux--decide pollux--this)
    t))

(defun pollux--killed ()
  "A buffer of a diff is being killed: that rejects, unless it is too early."
  (let ((d pollux--this))
    (when (and d (not (pollux--diff-hiding d)))
      (setf (pollux--diff-text d) (pollux--text d))
      (if (eq (current-buffer) (pollux--diff-buffer d))
          (setf (pollux--diff-buffer d) nil)
        (setf (pollux--diff-left d) nil))
      (if (pollux--ripe-p d)
          (pollux--decline d)
        (pollux--dismiss d)))))

(defun pollux--dismiss (d)
  "Keep D, whose view the user has closed too early to decide."
  (unless (pollux--diff-ended d)
    (pollux--keep-edits d)
    (when (eq pollux--shown d)
      (setq pollux--shown nil))
    (setf (pollux--diff-dismissed d) t)
    (run-at-time 0 nil #'pollux--tidy d)
    (unless (equal (pollux--diff-state d) "accepted")
      (pollux--say "%s had just appeared, and goes on waiting: M-x pollux-next shows it" (pollux--name d)))))

(defun pollux--tidy (d)
  "Clean up after a view of D that the user has closed."
  (when (pollux--diff-dismissed d)
    (setf (pollux--diff-dismissed d) nil)
    (pollux--hide d)))

(defun pollux--terminal-p (buffer)
  "Whether BUFFER is a terminal."
  (with-current-buffer buffer
    (derived-mode-p 'term-mode 'vterm-mode 'eat-mode 'eshell-mode 'shell-mode)))

(defun pollux--beside (path)
  "The window beside which a diff of PATH opens."
  (let ((windows (seq-remove #'window-dedicated-p (window-list nil 'no-minibuffer))))
    (or (seq-find (lambda (w) (equal (buffer-file-name (window-buffer w)) path)) windows)
        (seq-find (lambda (w) (buffer-file-name (window-buffer w))) windows)
        (seq-find (lambda (w) (not (pollux--terminal-p (window-buffer w)))) windows)
        (selected-window))))

(defun pollux--split (window side buffer &optional size)
  "Split WINDOW, put BUFFER on its SIDE with SIZE, and return that window."
  (let* ((window-combination-resize nil)
         (window-combination-limit t) ; so that WINDOW has the room again afterwards
         (new (split-window window (and size (- size)) side)))
    (set-window-buffer new buffer)
    (set-window-dedicated-p new nil)
    new))

(defun pollux--caption (d)
  "Say above the proposal of D what it is."
  (when (buffer-live-p (pollux--diff-buffer d))
    (with-current-buffer (pollux--diff-buffer d)
      (setq header-line-format
            (replace-regexp-in-string
             "%" "%%"
             (cond
              ((equal (pollux--diff-state d) "accepted")
               (format " %s: accepted; waiting for the agent to write the file" (pollux--name d)))
              ((not (pollux--diff-settled d))
               (format " Gemini proposes: %s (look at it, then decide)" (pollux--name d)))
              (t
               (format " Gemini proposes: %s (C-c C-c %s, C-c C-k rejects)" (pollux--name d)
                       (if (equal (pollux--diff-state d) "orphaned")
                           "saves; its CLI has ended" "accepts"))))
             t t)))))

(defconst pollux--settle-parts 5
  "The parts in which the time passes.
After a while in which Emacs was busy, the keys of that while are read before it
goes on.")
(defvar pollux--settle 500 "Milliseconds after which a diff can be decided on.")
(defvar pollux--begun nil "When the command that runs was begun; nil outside of commands.")

(defun pollux--unsettle (d)
  "Start the time after which D can be decided on."
  (let ((was (pollux--diff-settled d)))
    (setf (pollux--diff-settled d) nil)
    (cl-incf (pollux--diff-looks d))
    (when was (pollux--caption d))
    (pollux--rest d (pollux--diff-looks d) 1)))

(defun pollux--rest (d looks part)
  "Wait for PART of the time after which D can be decided on.
Do nothing if the time has started again since: LOOKS counts the starts."
  (run-at-time
   (/ pollux--settle 1000.0 pollux--settle-parts) nil
   (lambda ()
     (when (and (= looks (pollux--diff-looks d)) (pollux--visible d))
       (if (< part pollux--settle-parts)
           (pollux--rest d looks (1+ part))
         (setf (pollux--diff-settled d) (float-time))
         (pollux--caption d)
         (force-mode-line-update t)
         (run-hooks 'pollux-diff-ready-hook))))))

(defun pollux--ripe-p (d)
  "Whether D can be decided on; a command counts from when it was begun."
  (or (pollux--diff-lost d)
      (and (not (equal (pollux--diff-state d) "accepted"))
           (pollux--diff-settled d)
           (or (not pollux--begun)
               (>= pollux--begun (pollux--diff-settled d))))))

(defconst pollux--appeared "This change has just appeared. Look at it, then decide."
  "The message about a decision that comes too early.")
(defconst pollux--unseen "Look at it first, then decide."
  "The message about a decision on a diff that is out of sight.")

(defun pollux--refuse (d)
  "Say why nothing is decided about D."
  (when (equal (pollux--diff-state d) "accepted")
    (user-error "%s is accepted; it waits for the agent to write the file" (pollux--name d)))
  (pollux--unsettle d)
  (user-error "%s" pollux--appeared))

(defun pollux--pressed ()
  "Note that a command begins.
A key for a diff that has just appeared starts its time again."
  (when (zerop (minibuffer-depth))
    (setq pollux--begun (float-time)))
  (let ((d (buffer-local-value 'pollux--this (window-buffer (selected-window)))))
    (when (and d (not (pollux--diff-settled d)) (not (pollux--diff-ended d)))
      (pollux--unsettle d))))

(defun pollux--command-done ()
  "A command has ended."
  (when (zerop (minibuffer-depth))
    (setq pollux--begun nil)))

(defun pollux--try (d)
  "Show D, and return whether that worked; if not, keep it waiting."
  (condition-case err
      (progn (pollux--show d) t)
    (error
     (pollux--say "%s waits to be reviewed, but cannot be shown (%s): M-x pollux-next"
                  (pollux--name d) (error-message-string err))
     nil)))

(defun pollux--show (d)
  "Put D on the screen; a failure is an error."
  (pollux--tidy d)
  (let* ((base (pollux--beside (pollux--diff-path d)))
         (file (file-name-nondirectory (pollux--diff-path d)))
         (dirty (when-let ((b (find-buffer-visiting (pollux--diff-path d))))
                  (and (buffer-modified-p b) b)))
         (inline (or (eq pollux-layout 'inline)
                     (and (eq pollux-layout 'auto) (< (window-width base) pollux--narrow))))
         (made (pollux--make-buffer d (format "*proposed: %s*" file) (pollux--diff-text d)))
         (window-min-height 3)
         first)
    (setf (pollux--diff-buffer d) (car made)
          (pollux--diff-form d) (cdr made)
          (pollux--diff-inline d) inline)
    (condition-case err
        (let ((height (max 5 (- (window-total-height base) (max 5 (/ (window-total-height base) 4))))))
          (if inline
              (progn
                (setq first (pollux--split base 'above (car made) height))
                (push first (pollux--diff-windows d)))
            (setf (pollux--diff-left d)
                  (car (pollux--make-buffer d (format "*on disk: %s*" file) (pollux--diff-original d))))
            (setq first (pollux--split base 'above (pollux--diff-left d) height))
            (push first (pollux--diff-windows d))
            (push (pollux--split first 'right (car made)) (pollux--diff-windows d)))
          (when dirty
            (push (pollux--split (car (pollux--diff-windows d)) 'right dirty) (pollux--diff-windows d))))
      (error
       (pollux--hide d)
       (error "%s" (error-message-string err))))
    (setq pollux--shown d)
    (when-let ((left (pollux--diff-left d)))
      (with-current-buffer left
        (setq buffer-read-only t
              header-line-format (if (pollux--diff-exists d) " on disk" " a new file"))
        (set-buffer-modified-p nil)))
    (with-current-buffer (car made)
      (buffer-enable-undo)
      (set-buffer-modified-p t)
      (pollux--caption d))
    (pollux--unsettle d)
    (when dirty
      (pollux--say "%s has unsaved changes; they are in a window of their own and stay as they are"
                   (pollux--name d)))
    (pollux--draw d t)))

(defun pollux--hide (d)
  "Take D off the screen."
  (when (eq pollux--shown d)
    (setq pollux--shown nil))
  (when (pollux--diff-pause d)
    (cancel-timer (pollux--diff-pause d)))
  (setf (pollux--diff-text d) (pollux--text d)
        (pollux--diff-settled d) nil
        (pollux--diff-hiding d) t)
  (cl-incf (pollux--diff-looks d))
  (dolist (window (pollux--diff-windows d))
    (when (and (window-live-p window) (not (eq window (frame-root-window (window-frame window)))))
      (ignore-errors (delete-window window))))
  (dolist (buffer (list (pollux--diff-buffer d) (pollux--diff-left d)))
    (when (buffer-live-p buffer)
      (with-current-buffer buffer (set-buffer-modified-p nil))
      (kill-buffer buffer)))
  (setf (pollux--diff-buffer d) nil
        (pollux--diff-left d) nil
        (pollux--diff-windows d) nil
        (pollux--diff-hiding d) nil))

(defun pollux--goto-line (line)
  "Go to LINE of the whole buffer."
  (goto-char (point-min))
  (forward-line (1- line)))

(defun pollux--mark (from count face)
  "Give COUNT lines after FROM the FACE."
  (save-excursion
    (pollux--goto-line from)
    (let ((overlay (make-overlay (point) (progn (forward-line count) (point)))))
      (overlay-put overlay 'pollux t)
      (overlay-put overlay 'face face))))

(defun pollux--draw (d &optional first)
  "Mark what differs in D; with FIRST go to the first hunk too."
  (let ((buffer (pollux--diff-buffer d)))
    (when (buffer-live-p buffer)
      (let ((tick (buffer-chars-modified-tick buffer)))
        (pollux--request
         'diff/hunks (list :id (pollux--diff-id d) :content (pollux--text d))
         (lambda (err result)
           (when (and (not err) (buffer-live-p buffer)
                      (= tick (buffer-chars-modified-tick buffer)))
             (setf (pollux--diff-hunks d) (append (plist-get result :hunks) nil))
             (pollux--draw-hunks d)
             (when-let ((hunk (and first (car (pollux--diff-hunks d)))))
               (dolist (window (get-buffer-window-list buffer nil t))
                 (with-selected-window window
                   (pollux--goto-line (plist-get hunk :line))
                   (ignore-errors (recenter))
                   (pollux--follow)))))))))))

(defconst pollux--most-removed 15
  "Lines that an inline view shows of what is taken out; it cannot be scrolled.")

(defun pollux--removed-text (lines)
  "The text of LINES, or the first of them."
  (concat (mapconcat #'identity (seq-take lines pollux--most-removed) "\n") "\n"
          (let ((more (- (length lines) pollux--most-removed)))
            (if (> more 0) (format "... %d more; C-c C-e compares\n" more) ""))))

(defun pollux--draw-hunks (d)
  "Mark the hunks of D."
  (dolist (buffer (list (pollux--diff-buffer d) (pollux--diff-left d)))
    (when (buffer-live-p buffer)
      (with-current-buffer buffer
        (save-restriction (widen) (remove-overlays (point-min) (point-max) 'pollux t)))))
  (dolist (hunk (pollux--diff-hunks d))
    (with-current-buffer (pollux--diff-buffer d)
      (save-restriction
        (widen)
        (pollux--mark (plist-get hunk :line) (plist-get hunk :lines) 'pollux-added)
        (when (and (pollux--diff-inline d) (> (length (plist-get hunk :removed)) 0))
          (save-excursion
            (pollux--goto-line (plist-get hunk :line))
            (let ((overlay (make-overlay (point) (point)))
                  (text (pollux--removed-text (append (plist-get hunk :removed) nil))))
              (overlay-put overlay 'pollux t)
              (overlay-put overlay 'before-string (propertize text 'face 'pollux-removed)))))))
    (when (buffer-live-p (pollux--diff-left d))
      (with-current-buffer (pollux--diff-left d)
        (pollux--mark (plist-get hunk :original) (plist-get hunk :originalLines) 'pollux-removed)))))

(defun pollux--follow ()
  "Scroll the text on disk along with the proposal."
  (when-let* ((d pollux--this)
              (left (pollux--diff-left d))
              (window (and (buffer-live-p left) (get-buffer-window left)))
              (buffer (pollux--diff-buffer d))
              (mine (get-buffer-window buffer)))
    (let* ((line (with-current-buffer (pollux--diff-buffer d)
                   (line-number-at-pos (window-start mine) t)))
           (off 0))
      (dolist (hunk (pollux--diff-hunks d))
        (when (<= (+ (plist-get hunk :line) (plist-get hunk :lines)) line)
          (setq off (- (plist-get hunk :originalLines) (plist-get hunk :lines) (- off)))))
      (with-current-buffer left
        (save-excursion
          (pollux--goto-line (max 1 (+ line off)))
          (set-window-start window (point)))))))

(defun pollux--edited (&rest _)
  "The user edits: keep the text at the next pause."
  (let ((d pollux--this))
    (when (and d (eq (current-buffer) (pollux--diff-buffer d)) (eq d pollux--shown))
      (when (pollux--diff-pause d)
        (cancel-timer (pollux--diff-pause d)))
      (setf (pollux--diff-pause d)
            (run-at-time 0.2 nil
                         (lambda ()
                           (unless (or (pollux--diff-ended d) (equal (pollux--diff-state d) "accepted"))
                             (pollux--notify 'diff/edit (list :id (pollux--diff-id d) :content (pollux--text d)))
                             (pollux--draw d))))))))

(defun pollux--finish (d)
  "D has been decided on."
  (setf (pollux--diff-ended d) t)
  (setq pollux--diffs (delq d pollux--diffs))
  (unless (or (pollux--diff-deciding d) (pollux--diff-finished d))
    (setf (pollux--diff-finished d) t)
    (run-at-time 0 nil #'pollux--finished d)))

(defun pollux--finished (d)
  "Take D away, and show the next."
  (if (active-minibuffer-window)
      ;; Which puts the windows back as they were when it ends.
      (letrec ((later (lambda ()
                        (remove-hook 'minibuffer-exit-hook later)
                        (run-at-time 0 nil #'pollux--finished d))))
        (add-hook 'minibuffer-exit-hook later))
    (pollux--hide d)
    (pollux--show-next)
    (force-mode-line-update t)
    (run-hooks 'pollux-diff-closed-hook)))

(defun pollux--keep-edits (d)
  "Give the text of D to Pollux, for the journal."
  (let ((text (pollux--text d)))
    (unless (equal text (pollux--diff-proposed d))
      (pollux--notify 'diff/edit (list :id (pollux--diff-id d) :content text)))))

(defun pollux--decline (d)
  "Reject D."
  (unless (pollux--diff-ended d)
    (pollux--keep-edits d)
    (pollux--finish d)
    (pollux--request 'diff/reject (list :id (pollux--diff-id d))
                     (lambda (err _) (when err (pollux--note "%s" err))))))

(defun pollux--decide (d &optional overwrite)
  "Accept D, over the version OVERWRITE of the file."
  (when (pollux--diff-lost d)
    (user-error "The companion that this change came from has ended: write the buffer with C-x C-w; `pollux journal' has the text too"))
  (unless (or (pollux--diff-ended d) (pollux--ripe-p d))
    (pollux--refuse d))
  (setf (pollux--diff-deciding d) t)
  (let ((result (unwind-protect
                    (pollux--call (if (equal (pollux--diff-state d) "orphaned") 'diff/save 'diff/accept)
                                  (append (list :id (pollux--diff-id d) :content (pollux--text d))
                                          (and overwrite (list :overwrite overwrite))))
                  (setf (pollux--diff-deciding d) nil)
                  (when (pollux--diff-ended d) (pollux--finish d)))))
    (pcase (plist-get result :status)
      ("accepted"
       (when (buffer-live-p (pollux--diff-buffer d))
         (with-current-buffer (pollux--diff-buffer d) (set-buffer-modified-p nil)))
       (pollux--finish d))
      ("conflict"
       (pcase (pollux--ask-conflict (plist-get result :message))
         (?o (pollux--decide d (plist-get result :version)))
           (?c (setf (pollux--diff-original d) (or (plist-get result :disk) ""))
             (if (not (buffer-live-p (pollux--diff-left d)))
                 (pollux-ediff)
               (with-current-buffer (pollux--diff-left d)
                 (let ((inhibit-read-only t))
                   (pollux--fill (pollux--diff-original d))))
               (pollux--say "on the left is now what the file holds")))))
      (_ (user-error "%s" (plist-get result :message))))))

(defun pollux--ask-conflict (message)
  "Ask what to do about a changed file, with MESSAGE; return the key.
A key that was meant for the text overwrites nothing."
  (let (asked key)
    (while (progn
             (setq asked (float-time)
                   key (car (read-multiple-choice
                             message '((?o "overwrite it") (?c "compare with it") (?n "not now")))))
             (and (eq key ?o) (< (* 1000 (- (float-time) asked)) pollux--settle))))
    key))

(defun pollux--open-diff (p)
  "Show the diff that P describes, or keep it waiting if that fails."
  (unless (pollux--find (plist-get p :id))
    (let ((d (make-pollux--diff
              :id (plist-get p :id) :path (plist-get p :path) :client (plist-get p :client)
              :original (plist-get p :original) :exists (eq (plist-get p :exists) t)
              :state (plist-get p :state) :proposed (plist-get p :proposed)
              :text (or (plist-get p :content) (plist-get p :proposed)))))
      (setq pollux--diffs (append pollux--diffs (list d)))
      (pollux--forget-hidden)
      (cond
       ((pollux--replace d))
       (pollux--shown)
       ((active-minibuffer-window)
        ;; Which puts the windows back as they were when it ends.
        (add-hook 'minibuffer-exit-hook #'pollux--show-later))
       (t
        (pollux--try d)))
      (force-mode-line-update t)
      (run-hooks 'pollux-diff-opened-hook))))

(defun pollux--forget-hidden ()
  "A diff whose windows the user took away does not keep others waiting."
  (when (and pollux--shown (not (pollux--visible pollux--shown)))
    (pollux--hide pollux--shown)))

(defun pollux--show-next ()
  "Show the diff that waits longest, unless one is shown."
  (pollux--forget-hidden)
  (when (and pollux--diffs (not pollux--shown))
    (if (active-minibuffer-window)
        (add-hook 'minibuffer-exit-hook #'pollux--show-later)
      (pollux--try (car pollux--diffs)))))

(defun pollux--show-later ()
  "Show what waits once the minibuffer is left."
  (remove-hook 'minibuffer-exit-hook #'pollux--show-later)
  (run-at-time 0 nil #'pollux--show-next))

(defun pollux--close-diff (id reason)
  "The diff with ID has been decided for REASON; return its text."
  (when-let ((d (pollux--find id)))
    (prog1 (pollux--text d)
      (if (not (and (equal reason "superseded") (buffer-live-p (pollux--diff-buffer d))))
          (pollux--finish d)
        ;; It stays until the new proposal is there: the user may be typing in it.
        (setf (pollux--diff-ended d) t)
        (setq pollux--diffs (delq d pollux--diffs)
              pollux--superseded d)
        (run-at-time 2 nil (lambda ()
                             (when (eq pollux--superseded d)
                               (setq pollux--superseded nil)
                               (pollux--finish d))))))))

(defun pollux--replace (d)
  "Let D, if it is the new proposal, take the place of the old, and its cursor."
  (when-let ((old pollux--superseded))
    (when (equal (pollux--diff-path old) (pollux--diff-path d))
      (setq pollux--superseded nil)
      (let ((inside (eq (window-buffer (selected-window)) (pollux--diff-buffer old))))
        (pollux--hide old)
        (when (and (pollux--try d) inside)
          (select-window (get-buffer-window (pollux--diff-buffer d)))))
      (pollux--finish old)
      t)))

(defun pollux--diff-changed (p)
  "Another client edited the text, or the CLI has ended, by P."
  (when-let ((d (pollux--find (plist-get p :id))))
    (when (plist-get p :state)
      (setf (pollux--diff-state d) (plist-get p :state))
      (pollux--caption d))
    (let ((text (plist-get p :content)))
      (when (and text (not (equal text (pollux--text d))))
        (setf (pollux--diff-text d) text)
        (when (buffer-live-p (pollux--diff-buffer d))
          (with-current-buffer (pollux--diff-buffer d)
            (let ((inhibit-modification-hooks t))
              (setf (pollux--diff-form d) (pollux--fill text))
              (set-buffer-modified-p t)))
          (pollux--unsettle d)
          (pollux--draw d))))))

(defun pollux--lost ()
  "The companion has ended: what is shown stays, and can be saved."
  (dolist (d pollux--diffs)
    (setf (pollux--diff-lost d) t)
    (when (buffer-live-p (pollux--diff-buffer d))
      (with-current-buffer (pollux--diff-buffer d)
        (setq header-line-format " the companion has ended: C-x C-w saves the text, as does `pollux journal'"))))
  (setq pollux--diffs (seq-filter #'pollux--diff-buffer pollux--diffs)))

(defun pollux--reload (path)
  "PATH was written by somebody else: read it again."
  (when-let ((buffer (find-buffer-visiting path)))
    (with-current-buffer buffer
      (cond
       ((buffer-modified-p)
        (pollux--say "%s was written; your unsaved changes are kept (M-x revert-buffer takes the file)"
                     (file-name-nondirectory path)))
       ((and (file-readable-p path) (not (verify-visited-file-modtime buffer)))
        (with-demoted-errors "pollux: %S"
          (revert-buffer t t t))))))
  (pollux--listed))

;;;; Commands

(defun pollux--some ()
  "The current diff; without one, a `user-error'."
  (let ((d (pollux--current)))
    (when (and d (pollux--diff-ended d) (not (pollux--diff-lost d)))
      (setq d (car pollux--diffs))) ; its view has not gone yet
    (or d (user-error "No change waits for you"))))

(defun pollux--visible (d)
  "Whether the proposal of D is in a window."
  (and (buffer-live-p (pollux--diff-buffer d))
       (get-buffer-window (pollux--diff-buffer d) 'visible)))

(defun pollux--seen ()
  "The current diff; one that is out of sight is shown, and not decided on."
  (let ((d (pollux--some)))
    (unless (pollux--visible d)
      (pollux-review d)
      (user-error "%s" pollux--unseen))
    d))

;;;###autoload
(defun pollux-accept ()
  "Accept the change: the CLI writes the file with the text as you left it."
  (interactive)
  (pollux--decide (pollux--seen)))

;;;###autoload
(defun pollux-reject ()
  "Reject the change."
  (interactive)
  (let ((d (pollux--seen)))
    (unless (pollux--ripe-p d)
      (pollux--refuse d))
    (pollux--decline d)))

(defun pollux-review (d)
  "Show D, in place of the diff on the screen, and go to it."
  (pollux--tidy d)
  (unless (and (buffer-live-p (pollux--diff-buffer d))
               (get-buffer-window (pollux--diff-buffer d)))
    (when-let ((other (or pollux--shown (and (pollux--diff-buffer d) d))))
      (pollux--notify 'diff/edit (list :id (pollux--diff-id other) :content (pollux--text other)))
      (pollux--hide other))
    (unless (pollux--try d)
      (user-error "%s cannot be shown: make room, then M-x pollux-next" (pollux--name d))))
  (select-window (get-buffer-window (pollux--diff-buffer d))))

;;;###autoload
(defun pollux-next ()
  "Go to the change on the screen; in it, to the next one that waits."
  (interactive)
  (let ((d (pollux--some)))
    (if (and (eq d (buffer-local-value 'pollux--this (window-buffer (selected-window))))
             (cdr pollux--diffs))
        (pollux-review (or (cadr (memq d pollux--diffs)) (car pollux--diffs)))
      (pollux-review d))))

;;;###autoload
(defun pollux-list ()
  "Choose one of the diffs that wait."
  (interactive)
  (unless pollux--diffs
    (user-error "No change waits for you"))
  (let* ((choices (mapcar (lambda (d)
                            (cons (format "%s  %s%s" (pollux--name d) (pollux--diff-client d)
                                          (if (equal (pollux--diff-state d) "orphaned")
                                              "  (its CLI has ended)" ""))
                                  d))
                          pollux--diffs))
         (choice (completing-read "Review: " choices nil t)))
    (pollux-review (cdr (assoc choice choices)))))

(defmacro pollux--in-proposal (d &rest body)
  "Bind D to the current diff and run BODY in its buffer and window."
  (declare (indent 1) (debug (symbolp body)))
  `(let ((,d (pollux--some)))
     (unless (buffer-live-p (pollux--diff-buffer ,d))
       (user-error "No change is on the screen"))
     (let ((window (get-buffer-window (pollux--diff-buffer ,d))))
       (with-selected-window (or window (selected-window))
         (with-current-buffer (pollux--diff-buffer ,d)
           ,@body)))))

(defun pollux--hunk (backwards)
  "Go to the next hunk, or the one before if BACKWARDS."
  (pollux--in-proposal d
    (let* ((line (line-number-at-pos nil t))
           (hunks (pollux--call 'diff/hunks (list :id (pollux--diff-id d) :content (pollux--text d))))
           (last (line-number-at-pos (point-max) t))
           (lines (mapcar (lambda (h) (min last (plist-get h :line))) (plist-get hunks :hunks)))
           (to (if backwards
                   (car (last (seq-filter (lambda (n) (< n line)) lines)))
                 (seq-find (lambda (n) (> n line)) lines))))
      (unless to
        (user-error (if backwards "No hunk before this line" "No hunk after this line")))
      (pollux--goto-line to)
      (pollux--follow))))

(defun pollux-next-hunk ()
  "Go to the next hunk."
  (interactive)
  (pollux--hunk nil))

(defun pollux-previous-hunk ()
  "Go to the hunk before."
  (interactive)
  (pollux--hunk t))

(defun pollux--take (what)
  "Make the hunk at point as in the original or the proposed text: WHAT."
  (pollux--in-proposal d
    (let ((edit (pollux--call 'diff/hunk (list :id (pollux--diff-id d) :content (pollux--text d)
                                               :line (line-number-at-pos nil t) :take what)))
          (inhibit-read-only t))
      (save-restriction
        (widen)
        (pollux--goto-line (plist-get edit :line))
        (let ((start (point)))
          (forward-line (plist-get edit :lines))
          (delete-region start (point))
          (insert (if (plist-get (pollux--diff-form d) :dos)
                      (replace-regexp-in-string "\r\n" "\n" (plist-get edit :text) t t)
                    (plist-get edit :text)))
          (goto-char start)))
      (set-buffer-modified-p t))))

(defun pollux-accept-hunk ()
  "Make the hunk at point as it was proposed."
  (interactive)
  (pollux--take "proposed"))

(defun pollux-undo-hunk ()
  "Make the hunk at point as it is on disk."
  (interactive)
  (pollux--take "original"))

(defun pollux-ediff ()
  "Compare the change with the file in Ediff; then decide as usual."
  (interactive)
  (require 'ediff)
  (let ((d (pollux--some)))
    (unless (buffer-live-p (pollux--diff-left d))
      (setf (pollux--diff-left d)
            (car (pollux--make-buffer d (format "*on disk: %s*" (file-name-nondirectory (pollux--diff-path d)))
                                      (pollux--diff-original d)))))
    (ediff-buffers (pollux--diff-left d) (pollux--diff-buffer d)
                   (list (lambda ()
                           (add-hook 'ediff-quit-hook
                                     (lambda ()
                                       (when (buffer-live-p (pollux--diff-buffer d))
                                         (pop-to-buffer (pollux--diff-buffer d))))
                                     t t))))))

;;;###autoload
(defun pollux-status ()
  "Say what Pollux knows."
  (interactive)
  (let ((s (pollux--call 'status (make-hash-table))))
    (message "%s"
             (string-join
              (append
               (list (format "Pollux %s, port %s: %s files told of in %s" (plist-get s :version)
                             (plist-get s :port) (plist-get s :files)
                             (mapconcat #'identity (plist-get s :roots) ", ")))
               (or (mapcar (lambda (c) (format "connected: %s %s" (plist-get c :name) (plist-get c :version)))
                           (plist-get s :clients))
                   (list "no CLI is connected: M-x pollux-open, or /ide enable in a CLI that runs"))
               (mapcar (lambda (d) (format "to review: %s (%s)" (pollux--name d) (pollux--diff-state d)))
                       pollux--diffs))
              "\n"))))

(defun pollux-log ()
  "Show what there was to say."
  (interactive)
  (with-current-buffer (get-buffer-create "*pollux log*")
    (let ((inhibit-read-only t))
      (erase-buffer)
      (insert (with-current-buffer (get-buffer-create " *pollux log*") (buffer-string))))
    (special-mode)
    (pop-to-buffer (current-buffer))))

;;;; The terminal

(defconst pollux--enter 0.15 "Seconds after a paste; the CLI takes an earlier Enter for a part of it.")
(defconst pollux--look 0.1 "Seconds between two looks at the CLI's screen.")
(defconst pollux--looks 100 "Looks until a question counts as not taken.")

(defun pollux--terminal ()
  "The CLI's terminal, if it is alive."
  (when-let ((buffer (get-buffer "*gemini*")))
    (and (process-live-p (get-buffer-process buffer)) buffer)))

(defun pollux--start-terminal ()
  "Start the CLI in a terminal, and return its buffer."
  (unless (pollux-ready-p)
    (user-error "Pollux is not running: M-x pollux-start, and M-x pollux-log if that fails"))
  (require 'term)
  (when-let ((old (get-buffer "*gemini*")))
    (kill-buffer old))
  (let ((default-directory (file-name-as-directory (car (pollux--roots))))
        (buffer (get-buffer-create "*gemini*")))
    (pollux--display-terminal buffer)
    (with-current-buffer buffer
      (term-mode)
      (term-exec buffer "gemini" (pollux--program) nil
                 (append '("run" "--attach") (and pollux-cli (cons "--" pollux-cli))))
      (term-char-mode)
      (set-process-query-on-exit-flag (get-buffer-process buffer) nil))
    buffer))

(defun pollux--display-terminal (buffer)
  "Show BUFFER beside, and go to it."
  (select-window
   (or (get-buffer-window buffer)
       (display-buffer buffer `((display-buffer-in-direction)
                                (direction . rightmost)
                                (window-width . ,pollux-terminal-width))))))

;;;###autoload
(defun pollux-open ()
  "Show Gemini CLI in a terminal beside; start it if it does not run."
  (interactive)
  (let ((buffer (pollux--terminal)))
    (if buffer
        (pollux--display-terminal buffer)
      (pollux--start-terminal))))

;;;###autoload
(defun pollux-toggle ()
  "Show Gemini CLI's terminal, or hide it."
  (interactive)
  (let ((window (and (pollux--terminal) (get-buffer-window (pollux--terminal)))))
    (cond ((not window) (pollux-open))
          ((eq window (frame-root-window)) (bury-buffer (window-buffer window)))
          (t (delete-window window)))))

(defun pollux--waits-p (prompt)
  "Whether the CLI's input line waits for a first character of PROMPT."
  (when-let ((buffer (pollux--terminal)))
    (with-current-buffer buffer
      (save-excursion
        (goto-char (if (markerp term-home-marker) term-home-marker (point-min)))
        (search-forward (plist-get prompt :ready) nil t)))))

(defun pollux--enter (prompt count)
  "Press Enter after PROMPT is on the CLI's screen, looking COUNT times.
The CLI is late to read what it is sent while it starts."
  (cond
   ((not (pollux--terminal)))
   ((not (pollux--waits-p prompt))
    (run-at-time pollux--enter nil
                 (lambda ()
                   (cond
                    ((pollux--waits-p prompt) (pollux--enter prompt count))
                    ((pollux--terminal)
                     (process-send-string (get-buffer-process (pollux--terminal)) "\r"))))))
   ((> count 0) (run-at-time pollux--look nil #'pollux--enter prompt (1- count)))
   (t (pollux--say "the CLI has not taken your question: %s" (plist-get prompt :text)))))

(defun pollux--type (prompt)
  "Type PROMPT into the CLI."
  (process-send-string (get-buffer-process (pollux--terminal)) (plist-get prompt :paste))
  (when (eq (plist-get prompt :submit) t)
    (pollux--enter prompt pollux--looks)))

(defun pollux--type-when-ready (prompt)
  "Type PROMPT once the CLI is ready."
  (cond
   ((not (pollux--terminal))
    (pollux--say "the CLI has ended; your question was: %s" (plist-get prompt :text)))
   ((pollux--waits-p prompt) (pollux--type prompt))
   (t (run-at-time pollux--look nil #'pollux--type-when-ready prompt))))

(defun pollux--target ()
  "The file, and the lines of the region, as Pollux takes them."
  (append
   (when buffer-file-name (list :path (expand-file-name buffer-file-name)))
   (when (and buffer-file-name (use-region-p))
     (list :line (line-number-at-pos (region-beginning) t)
           :endLine (line-number-at-pos (if (= (region-end) (region-beginning))
                                            (region-end)
                                          (1- (region-end)))
                                        t)))))

(defun pollux--send (params)
  "Ask the CLI what PARAMS say."
  (when (and (plist-get params :path) (buffer-modified-p))
    (pollux--say "the CLI reads the file as it was saved last"))
  (let ((prompt (pollux--call 'prompt params))
        (running (pollux--terminal)))
    (pollux-open)
    (if running
        (pollux--type prompt)
      (pollux--type-when-ready prompt))))

;;;###autoload
(defun pollux-send (question)
  "Ask Gemini CLI QUESTION about the region's lines, or the file.
With an empty question only the file is named, and you go on typing."
  (interactive (list (read-string "Ask Gemini: ")))
  (when (and (not buffer-file-name) (string-empty-p question))
    (user-error "This buffer is no file: ask a question"))
  (pollux--send (append (list :question question) (pollux--target))))

(defun pollux--problems ()
  "What Flymake and Flycheck say of the buffer."
  (append
   (when (bound-and-true-p flymake-mode)
     (mapcar (lambda (d)
               (list :line (line-number-at-pos (flymake-diagnostic-beg d) t)
                     :severity (replace-regexp-in-string "\\`:\\|-?flymake-" "" (format "%s" (flymake-diagnostic-type d)))
                     :message (flymake-diagnostic-text d)))
             (flymake-diagnostics)))
   (when (bound-and-true-p flycheck-mode)
     (mapcar (lambda (e)
               (list :line (or (flycheck-error-line e) 1)
                     :severity (format "%s" (flycheck-error-level e))
                     :message (or (flycheck-error-message e) "")))
             flycheck-current-errors))))

;;;###autoload
(defun pollux-diagnostics (question)
  "Give Gemini CLI the diagnostics of the region, or the file, with QUESTION."
  (interactive (list (read-string "Ask Gemini: " nil nil "Fix these.")))
  (let* ((target (pollux--target))
         (from (plist-get target :line))
         (problems (seq-filter (lambda (p)
                                 (or (not from)
                                     (<= from (plist-get p :line) (plist-get target :endLine))))
                               (pollux--problems))))
    (unless problems
      (user-error "Flymake and Flycheck have nothing about this"))
    (pollux--send (append (list :question question :problems (vconcat problems)) target))))

;;;; The mode

(defvar pollux-command-map
  (let ((map (make-sparse-keymap)))
    (define-key map "o" #'pollux-open)
    (define-key map "t" #'pollux-toggle)
    (define-key map "s" #'pollux-send)
    (define-key map "d" #'pollux-diagnostics)
    (define-key map "a" #'pollux-accept)
    (define-key map "r" #'pollux-reject)
    (define-key map "n" #'pollux-next)
    (define-key map "l" #'pollux-list)
    (define-key map "?" #'pollux-status)
    map)
  "The commands, for a prefix key of your choice.")
(fset 'pollux-command-map pollux-command-map)

;;;###autoload
(defun pollux-menu ()
  "Choose a command by one key."
  (interactive)
  (call-interactively
   (pcase (car (read-multiple-choice
                "Pollux:"
                '((?o "open") (?s "send") (?d "diagnostics") (?n "next") (?a "accept") (?r "reject")
                  (?l "list") (?t "toggle") (?i "status"))))
     (?i #'pollux-status)
     (key (lookup-key pollux-command-map (string key))))))

(defvar pollux-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map [menu-bar tools pollux]
      (list 'menu-item "Gemini CLI" (make-sparse-keymap "Gemini CLI")))
    (dolist (item '(("Log" . pollux-log) ("Status" . pollux-status) ("List Changes" . pollux-list)
                    ("Reject" . pollux-reject) ("Accept" . pollux-accept) ("Next Change" . pollux-next)
                    ("Send Diagnostics" . pollux-diagnostics) ("Send..." . pollux-send)
                    ("Open" . pollux-open)))
      (define-key map (vector 'menu-bar 'tools 'pollux (cdr item)) item))
    map)
  "The menu of `pollux-mode'; it binds no keys.")

(defun pollux-mode-line ()
  "How many diffs wait for you, and that a CLI is connected."
  (cond (pollux--diffs (format " Gemini[%d]" (length pollux--diffs)))
        (pollux--clis " Gemini")
        (t "")))

;;;###autoload
(define-minor-mode pollux-mode
  "Be the companion of Gemini CLI."
  :global t
  :lighter (:eval (pollux-mode-line))
  :keymap pollux-mode-map
  (if pollux-mode
      (pollux-start)
    (pollux-stop)))

(provide 'pollux)
;;; pollux.el ends here
