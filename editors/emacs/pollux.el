;;; pollux.el --- Companion for Gemini CLI and other agents  -*- lexical-binding: t; -*-

;; Version: 1.0
;; Package-Requires: ((emacs "27.1"))
;; Keywords: tools, convenience
;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Pollux tells an agent such as Gemini CLI which files are open in Emacs, where
;; point is and what is selected.  It shows the changes that the agent proposes
;; as diffs that you edit, accept or reject.  It needs the program `pollux'.
;;
;; `pollux-mode' turns it on.  `pollux-open' starts an agent in a terminal
;; window, and with a prefix argument asks which one; an agent in another
;; terminal of this Emacs finds Pollux too.  `pollux-send' sends the region or
;; the file to an agent, with or without a question, also to one in a tmux pane.
;; In a diff: C-c C-c or C-x C-s accepts; C-c C-k or killing the buffer
;; rejects; C-c C-n and C-c C-p go from hunk to hunk; C-c C-u undoes the hunk
;; at point, C-c C-a redoes it; C-c C-e opens Ediff.
;;
;; A change can be decided on once it has been in view for half a second without
;; a key press in it, so that a key meant for another change decides nothing.
;; If you kill its buffer earlier, the change stays pending: `pollux-next' shows
;; it again.
;;
;; Agents that ask for diagnostics, such as Claude Code, receive those of Flymake
;; and Flycheck.
;;
;; `pollux ide' does everything that is not specific to Emacs.  This file speaks
;; JSON-RPC with it.

;;; Code:

(require 'cl-lib)
(require 'jsonrpc)
(require 'project)
(require 'subr-x)

(defvar term-home-marker)
(declare-function term-mode "term")
(declare-function term-char-mode "term")
(declare-function term-in-line-mode "term")
(declare-function term-exec "term")
(defvar eat-kill-buffer-on-exit)
(defvar eat-terminal)
(declare-function eat-mode "ext:eat")
(declare-function eat-exec "ext:eat")
(declare-function eat-term-display-beginning "ext:eat")
(defvar vterm-buffer-name-string)
(defvar vterm-kill-buffer-on-exit)
(defvar vterm-min-window-width)
(defvar vterm-mode-map)
(defvar vterm-shell)
(declare-function vterm-mode "ext:vterm")
(declare-function vterm-copy-mode "ext:vterm")
(declare-function vterm-send-start "ext:vterm")
(declare-function flymake-diagnostics "flymake")
(declare-function flymake-diagnostic-beg "flymake")
(declare-function flymake-diagnostic-end "flymake")
(declare-function flymake-diagnostic-text "flymake")
(declare-function flymake-diagnostic-type "flymake")
(declare-function flycheck-error-checker "ext:flycheck")
(declare-function flycheck-error-id "ext:flycheck")
(declare-function flycheck-error-line "ext:flycheck")
(declare-function flycheck-error-region-for-mode "ext:flycheck")
(declare-function flycheck-error-level "ext:flycheck")
(declare-function flycheck-error-message "ext:flycheck")
(declare-function ediff-buffers "ediff")
(declare-function ediff-really-quit "ediff-util")
(defvar flymake-mode)
(defvar flycheck-current-errors)
(defvar ediff-cleanup-hook)
(defvar ediff-keep-variants)
(defvar ediff-quit-hook)

(defgroup pollux nil
  "Companion for Gemini CLI and other agents."
  :group 'tools
  :prefix "pollux-")

(defcustom pollux-command nil
  "The program `pollux'.
If nil, use the one that `pollux install' recorded, otherwise the one on
the variable `exec-path'."
  :type '(choice (const :tag "Find it" nil) file))

(defcustom pollux-cli nil
  "The program, with arguments, that `pollux-open' runs.
If nil, run the agent that `pollux run' chooses."
  :type '(choice (const :tag "As pollux run" nil) (repeat string)))

(defcustom pollux-layout 'auto
  "How a diff is shown.
With `auto', side by side if there are 100 columns for it."
  :type '(choice (const auto) (const side-by-side) (const inline)))

(defcustom pollux-include-ignored nil
  "Whether ignored files and likely secrets are sent to the agent too."
  :type 'boolean)

(defcustom pollux-review-page nil
  "Whether changes are shown on the browser page too."
  :type 'boolean)

(defcustom pollux-terminal-backend 'auto
  "The package whose terminal `pollux-open' starts an agent in.
With `auto' or nil, the first of Eat, vterm and Term that works here.  Eat
and vterm are packages of their own; Term is a part of Emacs.  A terminal
that is already open stays as it is."
  :type '(choice (const :tag "The first that is installed" auto)
                 (const :tag "Eat" eat) (const vterm) (const :tag "Term" term)))

(defcustom pollux-terminal-width 0.4
  "The fraction of the frame's width for the agent's terminal."
  :type 'number)

(defface pollux-added '((t :inherit diff-added :extend t))
  "Lines that a proposal adds.")

(defface pollux-removed '((t :inherit diff-removed :extend t))
  "Lines that a proposal removes.")

(defvar pollux-diff-opened-hook nil "Run when a diff has arrived.")
(defvar pollux-diff-ready-hook nil "Run when the diff in view can be decided on.")
(defvar pollux-diff-closed-hook nil "Run when a diff has been decided on.")

;;;; The process

(defconst pollux--version "1.0")
(defconst pollux--protocol 1)
(defconst pollux--max-failures 5 "Failed starts in a row before giving up.")

(defvar pollux--connection nil)
(defvar pollux--info nil "The result of initialize, while the companion is running.")
(defvar pollux--previous nil "Port and token of a companion that crashed.")
(defvar pollux--stopping nil)
(defvar pollux--started nil)
(defvar pollux--failures 0)
(defvar pollux--agents nil "The connected agents.")
(defvar pollux--outside nil "The files that changed outside Pollux.")
(defvar pollux--directory (or command-line-default-directory default-directory)
  "The directory in which Emacs was started.")

(defun pollux-ready-p ()
  "Return non-nil if the companion is running."
  (and pollux--info t))

(defun pollux--note (format &rest args)
  "Add FORMAT with ARGS to the log."
  (with-current-buffer (get-buffer-create " *pollux log*")
    (goto-char (point-max))
    (insert (format-time-string "%T ") (apply #'format format args) "\n")
    (when (> (buffer-size) 100000)
      (delete-region (point-min) (/ (point-max) 2)))))

(defun pollux--say (format &rest args)
  "Show FORMAT with ARGS to the user."
  (let ((text (apply #'format format args)))
    (pollux--note "%s" text)
    (message "pollux: %s" text)))

(defconst pollux--here (file-name-directory (or load-file-name buffer-file-name "")))

(defun pollux--program ()
  "Return the program to start."
  (let ((noted (expand-file-name "command" pollux--here)))
    (or pollux-command
        (and (file-readable-p noted)
             (let ((program (with-temp-buffer
                              (let ((coding-system-for-read 'utf-8))
                                (insert-file-contents noted))
                              (string-trim (buffer-string)))))
               (and (file-executable-p program) program)))
        "pollux")))

(defun pollux--set-env (env)
  "Set ENV, a plist of variables, for future child processes."
  (cl-loop for (name value) on env by #'cddr
           do (setenv (substring (symbol-name name) 1) value)))

(defun pollux--bool (value)
  "Return VALUE as a JSON boolean."
  (if value t :json-false))

(defun pollux--request (method params callback)
  "Call METHOD with PARAMS.
Pass CALLBACK an error message or nil, and the result."
  (if (not pollux--connection)
      (funcall callback "Pollux is not running: use M-x pollux-start" nil)
    (condition-case err
        (jsonrpc-async-request
         pollux--connection method params
         :timeout 40 ; a busy agent takes long to show what it was sent
         :success-fn (lambda (result) (funcall callback nil result))
         :error-fn (lambda (err) (funcall callback (plist-get err :message) nil))
         :timeout-fn (lambda () (funcall callback "Pollux did not answer" nil)))
      (error ; it has exited, and `pollux--ended' comes later
       (pollux--note "%s" (error-message-string err))
       (funcall callback "Pollux has exited: see M-x pollux-log" nil)))))

(defun pollux--call (method params)
  "Call METHOD with PARAMS and return the result, or signal a `user-error'."
  (unless (pollux-ready-p)
    (user-error "Pollux is not running: use M-x pollux-start; if that fails, see M-x pollux-log"))
  ;; Not `jsonrpc-request': it ends the process filter as soon as the answer is
  ;; there.  A request that arrived together with the answer would wait in the
  ;; buffer until something else arrives.
  (let (answer)
    (pollux--request method params (lambda (err result) (setq answer (list err result))))
    (while (not answer)
      (accept-process-output nil 1))
    (pcase-let ((`(,err ,result) answer))
      (when err
        (user-error "Pollux: %s" err))
      result)))

(defun pollux--notify (method params)
  "Send Pollux the notification METHOD with PARAMS."
  (when (pollux-ready-p)
    (condition-case err
        (jsonrpc-notify pollux--connection method params)
      (error (pollux--note "%s" (error-message-string err)))))) ; as in `pollux--request'

(defun pollux--on-request (_connection method params)
  "Answer Pollux's request of METHOD with PARAMS."
  (pcase method
    ('diff/open (pollux--open-diff params) (make-hash-table))
    ('diagnostics (list :files (vconcat (pollux--checked-files (plist-get params :path)))))
    ('diff/close (let ((text (pollux--close-diff (plist-get params :id) (plist-get params :reason))))
                   (if text (list :content text) (make-hash-table))))
    (_ (jsonrpc-error :code -32601 :message (format "unknown method %s" method)))))

(defun pollux--on-notification (_connection method params)
  "Handle the notification METHOD with PARAMS from Pollux."
  (pcase method
    ('diff/changed (pollux--diff-changed params))
    ('file/changed (pollux--reload (plist-get params :path)))
    ('clients (setq pollux--agents (append (plist-get params :clients) nil))
              (force-mode-line-update t))
    ('outside (setq pollux--outside (append (plist-get params :files) nil)))
    ('env (pollux--set-env (plist-get params :env)))
    ('message (pollux--say "%s" (plist-get params :text)))))

(defun pollux-start ()
  "Start Pollux, unless it is running."
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
      (when (eq system-type 'windows-nt)
        (add-hook 'kill-emacs-hook #'pollux--exit))
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
        ;; Keep no copy of the messages: they contain the user's texts.
        (ignore-errors
          (if (slot-exists-p connection '-events-buffer-scrollback-size)
              (setf (slot-value connection '-events-buffer-scrollback-size) 0)
            (setf (slot-value connection '-events-buffer-config) '(:size 0 :format full))))
        (setq pollux--connection connection)
        (pollux--request
         'initialize
         (list :protocol pollux--protocol
               :client (list :name "pollux.el" :version pollux--version)
               :editor (list :name "emacs" :displayName "Emacs")
               :pid (emacs-pid)
               :roots (vconcat (pollux--roots))
               :diff t
               :diagnostics t
               :settings (append (list :includeIgnored (pollux--bool pollux-include-ignored)
                                       :reviewPage (pollux--bool pollux-review-page))
                                 pollux--previous))
         #'pollux--initialized))))))

(defun pollux--initialized (err result)
  "Handle ERR or RESULT, the answer to initialize."
  (cond
   ((and err (not (and pollux--connection (jsonrpc-running-p pollux--connection))))) ; `pollux--ended' reports why
   (err
    (pollux--say "%s" err)
    (pollux-stop))
   ((not (equal (plist-get result :protocol) pollux--protocol))
    (pollux--say "this package and `%s' are not compatible: update both" (pollux--program))
    (pollux-stop))
   (t
    (setq pollux--info result
          pollux--previous (list :port (plist-get result :port) :token (plist-get result :token)))
    (pollux--set-env (plist-get result :env))
    (pollux--note "started: pollux %s, port %s" (plist-get (plist-get result :server) :version)
                  (plist-get result :port))
    (pollux--context-start))))

(defun pollux--ended (connection)
  "Restart the process of CONNECTION, which has exited, unless it was stopped."
  (let ((was pollux--info)
        (code (process-exit-status (jsonrpc--process connection)))
        (last (with-current-buffer (get-buffer-create " *pollux errors*")
                (string-trim (buffer-string)))))
    (setq pollux--connection nil pollux--info nil pollux--agents nil pollux--outside nil)
    (pollux--context-stop)
    (pollux--lost)
    (force-mode-line-update t)
    (when (eq pollux--stopping 'restart)
      (run-at-time 0 nil #'pollux--relaunch))
    (unless pollux--stopping
      (pollux--note "pollux exited with code %s. %s" code last)
      (when (and was (> (- (float-time) pollux--started) 10))
        (setq pollux--failures 0))
      (cl-incf pollux--failures)
      (cond
       ((and (eql code 2) (not was))
        (pollux--say "`%s' is too old for this package: install a newer one" (pollux--program)))
       ((>= pollux--failures pollux--max-failures)
        (pollux--say "Pollux keeps exiting: %s (M-x pollux-start tries again)" last))
       (t
        (run-at-time (if (= pollux--failures 1) 0 (* 0.25 (expt 2 pollux--failures))) nil
                     #'pollux--relaunch))))))

(defun pollux--relaunch ()
  "Start `pollux ide', unless the user has stopped it in the meantime."
  (unless (eq pollux--stopping t)
    (pollux--launch)))

(defun pollux-stop ()
  "Stop Pollux.
Agents that wait for an answer receive a rejection."
  (interactive)
  (setq pollux--stopping t)
  (when (and pollux--connection (jsonrpc-running-p pollux--connection))
    (process-send-eof (jsonrpc--process pollux--connection))))

(defun pollux--exit ()
  "Stop Pollux, and wait a moment for its end.
Emacs for Windows kills its processes before they can clean up."
  (pollux-stop)
  (when-let ((process (and pollux--connection (jsonrpc--process pollux--connection))))
    (with-timeout (2)
      (while (process-live-p process)
        (accept-process-output process 0.05)))))

;;;; Context

(defvar pollux--files nil "The open files: an alist of buffers and paths.")
(defvar pollux--files-due t)
(defvar pollux--roots-due t)
(defvar pollux--focused (make-hash-table :test 'eq :weakness 'key))
(defvar pollux--active nil "The file buffer that has, or last had, the focus.")
(defvar pollux--active-state nil "Its cursor and selection, a plist.")
(defvar pollux--push-timer nil)
(defvar pollux--roots-sent nil)
(defvar pollux--projects (make-hash-table :test 'equal) "Roots by directory.")
(defconst pollux--max-selection 20000 "Characters to send; Pollux enforces the exact limit.")

(defun pollux--project-root (dir)
  "Return the root of the project of DIR, or nil."
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
  "Return the workspace: the projects of open files and of Emacs's directory."
  (let ((roots (list (or (pollux--project-root pollux--directory)
                         (directory-file-name (expand-file-name pollux--directory))))))
    (dolist (file (sort (mapcar #'cdr pollux--files) #'string<))
      (when-let ((root (pollux--project-root (file-name-directory file))))
        (cl-pushnew root roots :test #'equal)))
    (seq-filter #'file-directory-p (nreverse roots))))

(defun pollux--file (buffer)
  "Return the path of BUFFER, if it is a file on disk."
  (when-let ((file (buffer-local-value 'buffer-file-name buffer)))
    (and (not (file-remote-p file))
         (file-regular-p file)
         (expand-file-name file))))

(defun pollux--visiting (path)
  "Return the buffer that visits PATH, or nil.
PATH comes from an agent, so looking it up connects to no other machine."
  (let ((non-essential t))
    (find-buffer-visiting path)))

(defun pollux--rebuild ()
  "Update the list of open files."
  (setq pollux--files-due nil
        pollux--roots-due t
        pollux--files (cl-loop for buffer in (buffer-list)
                               for file = (pollux--file buffer)
                               when file collect (cons buffer file))))

(defun pollux--position (pos)
  "Return POS as Pollux counts: by lines and by UTF-16 code units, from 1."
  (save-excursion
    (goto-char pos)
    (let ((from (line-beginning-position)))
      (list :line (line-number-at-pos)
            :character
            (+ 1 (- pos from)
               (if (= (- pos from) (- (position-bytes pos) (position-bytes from)))
                   0 ; ASCII; the line may be long
                 (goto-char from)
                 (how-many "[\x10000-\x10FFFF]" from pos)))))))

(defun pollux--clean (text)
  "Return TEXT, with every character that is not Unicode replaced."
  (replace-regexp-in-string "[^\0-\x10FFFF]" "\xFFFD" (substring-no-properties text) t t))

(defun pollux--sample ()
  "Record point and the selection of the selected window.
In a terminal or another buffer that is not a file, keep the last ones: the
user is asking the agent about that file."
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
                (append (list :cursor (pollux--position (point)))
                        (when (use-region-p)
                          (list :selection (pollux--selection)
                                :range (pollux--range))))))))))

(defun pollux--range ()
  "Return the range of the selection, or the one that encloses its rectangle."
  (let ((bounds (region-bounds)))
    (list :start (pollux--position (caar bounds))
          :end (pollux--position (cdar (last bounds))))))

(defun pollux--selection ()
  "Return the selected text, which may be a rectangle."
  (if (bound-and-true-p rectangle-mark-mode)
      (pollux--clean (mapconcat #'identity (extract-rectangle (region-beginning) (region-end)) "\n"))
    (pollux--clean (buffer-substring-no-properties
                    (region-beginning)
                    (min (region-end) (+ (region-beginning) pollux--max-selection))))))

(defvar pollux--last nil "The last state that `pollux--moved-p' saw.")

(defun pollux--moved-p ()
  "Record the selected window; return nil if nothing has changed."
  (let ((window (selected-window)))
    (unless (minibufferp (window-buffer window))
      (with-current-buffer (window-buffer window)
        (let ((now (list (current-buffer) (point) (use-region-p) (mark t)
                         (buffer-chars-modified-tick) pollux--files-due pollux--agents)))
          (unless (and (equal now pollux--last) (not pollux--files-due))
            (setq pollux--last now)
            (pollux--sample)
            t))))))

(defun pollux--push ()
  "Send a snapshot of what is open."
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
  "Send a snapshot of what is open once Emacs is idle."
  (unless pollux--push-timer
    (setq pollux--push-timer (run-at-time 0 nil #'pollux--push))))

(defun pollux--listed (&rest _)
  "Note that the list of files may have changed."
  (setq pollux--files-due t)
  (pollux--soon))

(defun pollux--saved ()
  "Report that the user saved the file of this buffer."
  (when buffer-file-name
    (pollux--notify 'file/saved (list :path (expand-file-name buffer-file-name)))))

(defconst pollux--hooks
  '((post-command-hook . pollux--soon)
    (pre-command-hook . pollux--pressed)
    (post-command-hook . pollux--command-done)
    (window-selection-change-functions . pollux--soon)
    (window-buffer-change-functions . pollux--listed)
    (after-delete-frame-functions . pollux--frame-deleted)
    (find-file-hook . pollux--listed)
    (kill-buffer-hook . pollux--listed)
    (after-save-hook . pollux--listed)
    (after-save-hook . pollux--saved)
    (after-set-visited-file-name-hook . pollux--listed)
    (flycheck-after-syntax-check-hook . pollux--checked)))

(defun pollux--context-start ()
  "Start to follow what the user does."
  (setq pollux--roots-sent (pollux--roots)
        pollux--last nil)
  (pcase-dolist (`(,hook . ,function) pollux--hooks)
    (add-hook hook function))
  (advice-add 'flymake--handle-report :after #'pollux--checked) ; there is no hook
  (pollux--listed))

(defun pollux--context-stop ()
  "Stop following what the user does."
  (pcase-dolist (`(,hook . ,function) pollux--hooks)
    (remove-hook hook function))
  (advice-remove 'flymake--handle-report #'pollux--checked))

;;;; Diagnostics

(defun pollux--severity (name)
  "Return Pollux's severity for NAME, a Flymake type or a Flycheck level."
  (let ((name (format "%s" name)))
    (cond ((string-match-p "error" name) "error")
          ((string-match-p "warning" name) "warning")
          (t "information"))))

(defun pollux--diagnostic (from to severity message &rest more)
  "Return a diagnostic between the positions FROM and TO.
SEVERITY is a Flymake type or a Flycheck level, MESSAGE its text, and MORE
a plist of other fields."
  (append (list :range (list :start (pollux--position from) :end (pollux--position to))
                :severity (pollux--severity severity)
                :message (pollux--clean (or message "")))
          more))

(defun pollux--flymake ()
  "Return Flymake's diagnostics for the buffer."
  (when (bound-and-true-p flymake-mode)
    (mapcar (lambda (d)
              (pollux--diagnostic (flymake-diagnostic-beg d) (flymake-diagnostic-end d)
                                  (flymake-diagnostic-type d) (flymake-diagnostic-text d)))
            (flymake-diagnostics))))

(defun pollux--flycheck ()
  "Return Flycheck's diagnostics for the buffer."
  (when (bound-and-true-p flycheck-mode)
    (mapcar (lambda (e)
              (let ((region (or (flycheck-error-region-for-mode e 'symbols) (cons (point-min) (point-min))))
                    (id (flycheck-error-id e)))
                (apply #'pollux--diagnostic (car region) (cdr region)
                       (flycheck-error-level e) (flycheck-error-message e)
                       :source (format "%s" (flycheck-error-checker e))
                       (when id (list :code (format "%s" id))))))
            (seq-filter #'flycheck-error-line flycheck-current-errors))))

(defun pollux--diagnostics ()
  "Return the diagnostics of Flymake and Flycheck for the buffer."
  (save-restriction
    (widen)
    (append (pollux--flymake) (pollux--flycheck))))

(defun pollux--checked-files (path)
  "Return the files that have Flymake or Flycheck, with their diagnostics.
With PATH, only that file."
  (cl-loop for buffer in (if path (delq nil (list (pollux--visiting path))) (buffer-list))
           for file = (pollux--file buffer)
           when (and file (with-current-buffer buffer
                            (or (bound-and-true-p flymake-mode) (bound-and-true-p flycheck-mode))))
           collect (list :path file
                         :diagnostics (with-current-buffer buffer (vconcat (pollux--diagnostics))))))

(defvar pollux--checked-paths nil "Files whose diagnostics may have changed.")

(defun pollux--checked (&rest _)
  "Announce that the diagnostics of the buffer may have changed."
  (when-let ((file (pollux--file (current-buffer))))
    (unless pollux--checked-paths
      (run-at-time 0 nil #'pollux--announce-checked))
    (cl-pushnew file pollux--checked-paths :test #'equal)))

(defun pollux--announce-checked ()
  "Send the paths of `pollux--checked'."
  (let ((paths pollux--checked-paths))
    (setq pollux--checked-paths nil)
    (pollux--notify 'diagnostics/changed (list :paths (vconcat paths)))))

;;;; Diffs

;; One is on the screen, the others are pending.  A view never takes the focus,
;; so that keys still reach the terminal that the user types in.
;;
;; A change can be decided on once it has been in view for a while without a key
;; press, because a key may have been meant for another change.  After that it
;; stays ready while it is in view.

(cl-defstruct pollux--diff
  "A change that an agent proposes."
  id path agent original exists state proposed
  fixed      ; why the user cannot edit the text; nil if the user can
  text       ; the current text, while no buffer holds it
  form       ; how to convert the buffer's text for the disk: :dos, :bom
  buffer left windows inline hunks pause
  ediff      ; the control buffer, while the user compares in Ediff
  settled    ; the time since which it can be decided on
  overwrite  ; the version of the file on disk that the user has compared it with
  (delays 0) ; how many delays have been started until then
  ended finished lost hiding deciding dismissed)

(defvar pollux--diffs nil "The pending diffs, the oldest first.")
(defvar pollux--shown nil "The diff on the screen.")
(defvar pollux--superseded nil "A view that waits for the proposal that replaces it.")
(defvar pollux--kept nil
  "The file for which `pollux--say-kept' was called last.
A decision binds it: the agent may write the file before Emacs has the answer.")
(defvar-local pollux--this nil "The diff that a buffer shows.")
(put 'pollux--this 'permanent-local t) ; the user may choose another mode

(defconst pollux--min-columns 100 "Columns for two texts side by side.")

(defun pollux-waiting ()
  "Return the pending diffs, the oldest first."
  pollux--diffs)

(defun pollux--current ()
  "Return the diff for a command: the current buffer's, or the one shown."
  (or (buffer-local-value 'pollux--this (window-buffer (selected-window)))
      pollux--shown
      (car pollux--diffs)))

(defun pollux--find (id)
  "Return the diff with ID."
  (cl-find id pollux--diffs :key #'pollux--diff-id :test #'equal))

(defun pollux--name (d)
  "Return a short name of the file of D."
  (file-relative-name (pollux--diff-path d) (car (pollux--roots))))

(defun pollux--fill (text)
  "Put TEXT into the buffer, and return its form on disk."
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
  "Return the text of D as it should be on disk."
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
    (define-key map (kbd "C-c C-a") #'pollux-redo-hunk)
    (define-key map (kbd "C-c C-u") #'pollux-undo-hunk)
    (define-key map (kbd "C-c C-e") #'pollux-ediff)
    map)
  "Keys of `pollux-diff-mode'.")

(define-minor-mode pollux-diff-mode
  "Minor mode for a change that an agent proposes."
  :lighter " Review"
  :keymap pollux-diff-mode-map)

(defvar inhibit-interaction)
(defvar org-inhibit-startup)
(defvar org-resource-download-policy)

(defun pollux--set-up ()
  "Set up the buffer for a diff, whatever its mode."
  (setq-local require-final-newline nil
              mode-require-final-newline nil
              before-save-hook nil
              after-save-hook nil
              buffer-invisibility-spec nil ; hide no text
              header-line-format '(:eval (pollux--header))
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
  "Return a buffer for D, called NAME, with TEXT, and its form."
  (let ((buffer (generate-new-buffer name))
        (path (pollux--diff-path d))
        form)
    (with-current-buffer buffer
      (buffer-disable-undo)
      (setq form (pollux--fill text)
            pollux--this d)
      ;; Use the mode only for display.  Its hooks, file-local variables and
      ;; questions are for real files.
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
  "Accept, instead of writing the buffer's file.
A buffer that got a file name, as with \\[write-file], is a copy and is
written."
  (unless buffer-file-name
    (pollux--decide pollux--this)
    t))

(defun pollux--killed ()
  "Reject the diff whose buffer is being killed, unless it is too early."
  (let ((d pollux--this))
    (when (and d (not (pollux--diff-hiding d)))
      (save-current-buffer (pollux--end-ediff d))
      (setf (pollux--diff-text d) (pollux--text d))
      (if (eq (current-buffer) (pollux--diff-buffer d))
          (setf (pollux--diff-buffer d) nil)
        (setf (pollux--diff-left d) nil))
      (if (pollux--can-decide-p d)
          (pollux--decline d)
        (pollux--dismiss d)))))

(defun pollux--dismiss (d)
  "Keep D pending, whose view the user has closed too early to decide."
  (unless (pollux--diff-ended d)
    (pollux--keep-edits d)
    (when (eq pollux--shown d)
      (setq pollux--shown nil))
    (setf (pollux--diff-dismissed d) t)
    (run-at-time 0 nil #'pollux--tidy d)
    (unless (equal (pollux--diff-state d) "accepted")
      (pollux--say "%s had just appeared, so it is still pending: M-x pollux-next shows it" (pollux--name d)))))

(defun pollux--tidy (d)
  "Clean up after the user has closed a view of D."
  (when (pollux--diff-dismissed d)
    (setf (pollux--diff-dismissed d) nil)
    (pollux--hide d)))

(defun pollux--terminal-p (buffer)
  "Return non-nil if BUFFER is a terminal."
  (with-current-buffer buffer
    (derived-mode-p 'term-mode 'vterm-mode 'eat-mode 'eshell-mode 'shell-mode)))

(defun pollux--beside (path)
  "Return the window next to which a diff of PATH opens."
  (let ((windows (seq-remove #'window-dedicated-p (window-list nil 'no-minibuffer))))
    (or (when-let ((buffer (pollux--visiting path)))
          (seq-find (lambda (w) (eq (window-buffer w) buffer)) windows))
        (seq-find (lambda (w) (buffer-file-name (window-buffer w))) windows)
        (seq-find (lambda (w) (not (pollux--terminal-p (window-buffer w)))) windows)
        (selected-window))))

(defun pollux--split (window side buffer &optional size)
  "Split WINDOW, put BUFFER on its SIDE with SIZE, and return that window."
  (let* ((window-combination-resize nil)
         (window-combination-limit t) ; WINDOW gets the room back afterwards
         (new (split-window window (and size (- size)) side)))
    (set-window-buffer new buffer)
    (set-window-dedicated-p new nil)
    new))

(defun pollux--caption (d)
  "Return the text above the proposal of D, for the width of the window.
It always has the name of the file.  In a narrow window the name of the agent
is missing, the path has no start, and the rest is brief."
  (pcase-let*
      ((state (pollux--diff-state d))
       (decided (or (pollux--diff-lost d) (equal state "accepted")))
       (keys " (C-c C-c/C-k)")
       (`(,who ,how ,brief)
        (cond
         ((pollux--diff-lost d)
          '("" ": the companion has ended; C-x C-w saves the text" " (ended)"))
         ((equal state "accepted")
          '("" ": accepted; waiting for the agent to write the file" " (accepted)"))
         ((equal state "outside")
          (list "changed outside Pollux: " " (C-c C-c saves this text, C-c C-k keeps the file)" keys))
         ((equal state "orphaned")
          (list (format "%s proposed: " (pollux--diff-agent d))
                " (disconnected; C-c C-c saves, C-c C-k discards)" keys))
         (t
          (list (format "%s proposes: " (pollux--diff-agent d))
                (if (pollux--diff-fixed d) " (read-only; C-c C-c accepts, C-c C-k rejects)"
                  " (C-c C-c accepts, C-c C-k rejects)")
                keys))))
       (`(,how ,brief)
        (cond (decided (list how brief))
              ((not (pollux--diff-settled d)) '(" (look at it, then decide)" " (look)"))
              ((pollux--diff-overwrite d) (list " (C-c C-c overwrites the file, C-c C-k keeps it)" keys))
              (t (list how brief))))
       (path (pollux--name d))
       (name (file-name-nondirectory path))
       (least (+ (string-width name) (if (equal name path) 0 1))) ; with a mark for the start
       (columns (1- (window-width)))
       (how (if (< (- columns (string-width how)) least) brief how))
       (room (max (- columns (string-width how)) (min least columns))))
    (when (< (- room (string-width who)) (min (string-width path) (max least 20)))
      (setq who ""))
    (let ((cut (- (string-width path) (- room (string-width who)))))
      (when (> cut 0)
        (setq path (concat "<" (truncate-string-to-width path (string-width path) (1+ cut))))))
    (replace-regexp-in-string "%" "%%" (concat " " who path how) t t)))

(defun pollux--header ()
  "Return the text above the buffer of a diff."
  (let ((d pollux--this))
    (cond ((eq (current-buffer) (pollux--diff-buffer d)) (pollux--caption d))
          ((equal (pollux--diff-state d) "outside") " before")
          ((pollux--diff-exists d) " on disk")
          (t " new file"))))

(defconst pollux--settle-parts 5
  "The number of timers that make up the delay.
If Emacs was busy, it reads the keys that were pressed meanwhile before the
next timer.")
(defvar pollux--settle 500 "Milliseconds until a diff can be decided on.")
(defvar pollux--begun nil "When the current command started; nil outside of commands.")

(defun pollux--unsettle (d)
  "Start the delay after which D can be decided on."
  (let ((was (pollux--diff-settled d)))
    (setf (pollux--diff-settled d) nil)
    (cl-incf (pollux--diff-delays d))
    (when was (force-mode-line-update t))
    (pollux--rest d (pollux--diff-delays d) 1)))

(defun pollux--rest (d delays part)
  "Wait for PART of the delay after which D can be decided on.
Start again while D is out of view.  Do nothing if the delay has restarted:
DELAYS counts the starts."
  (run-at-time
   (/ pollux--settle 1000.0 pollux--settle-parts) nil
   (lambda ()
     (when (and (= delays (pollux--diff-delays d)) (buffer-live-p (pollux--diff-buffer d)))
       (cond
        ((not (pollux--visible d)) (pollux--rest d delays 1))
        ((< part pollux--settle-parts) (pollux--rest d delays (1+ part)))
        (t
         (setf (pollux--diff-settled d) (float-time))
         (force-mode-line-update t)
         (run-hooks 'pollux-diff-ready-hook)))))))

(defun pollux--can-decide-p (d)
  "Return non-nil if D can be decided on; a command counts from its start."
  (or (pollux--diff-lost d)
      (and (not (equal (pollux--diff-state d) "accepted"))
           (pollux--diff-settled d)
           (or (not pollux--begun)
               (>= pollux--begun (pollux--diff-settled d))))))

(defconst pollux--appeared "This change has just appeared. Look at it, then decide."
  "Message for a decision that comes too early.")
(defconst pollux--unseen "Look at it first, then decide."
  "Message for a decision on a diff that is not in view.")

(defun pollux--refuse (d)
  "Signal why nothing can be decided about D."
  (when (equal (pollux--diff-state d) "accepted")
    (user-error "%s is accepted; waiting for the agent to write the file" (pollux--name d)))
  (pollux--unsettle d)
  (user-error "%s" pollux--appeared))

(defun pollux--pressed ()
  "Note the start of a command.
A key for a diff that has just appeared restarts its delay."
  (when (zerop (minibuffer-depth))
    (setq pollux--begun (float-time)))
  (let ((d (buffer-local-value 'pollux--this (window-buffer (selected-window)))))
    (when (and d (not (pollux--diff-settled d)) (not (pollux--diff-ended d)))
      (pollux--unsettle d))))

(defun pollux--command-done ()
  "Note that a command has ended."
  (when (zerop (minibuffer-depth))
    (setq pollux--begun nil)))

(defun pollux--try (d)
  "Show D, and return whether that worked; if not, keep it pending."
  (condition-case err
      (progn (pollux--show d) t)
    (error
     (pollux--hide d)
     (pollux--say "%s is pending but cannot be shown (%s): M-x pollux-next"
                  (pollux--name d) (error-message-string err))
     nil)))

(defun pollux--show (d)
  "Put D on the screen; signal an error if that fails."
  (pollux--tidy d)
  (let* ((base (pollux--beside (pollux--diff-path d)))
         (file (file-name-nondirectory (pollux--diff-path d)))
         (dirty (when-let ((b (pollux--visiting (pollux--diff-path d))))
                  (and (buffer-modified-p b) b)))
         (inline (or (eq pollux-layout 'inline)
                     (and (eq pollux-layout 'auto) (< (window-width base) pollux--min-columns))))
         (made (pollux--make-buffer d (format "*proposed: %s*" file) (pollux--diff-text d)))
         (window-min-height 3))
    (setf (pollux--diff-buffer d) (car made)
          (pollux--diff-form d) (cdr made)
          (pollux--diff-inline d) inline)
    (let* ((height (max 5 (- (window-total-height base) (max 5 (/ (window-total-height base) 4)))))
           (above (lambda (buffer)
                    (push (pollux--split base 'above buffer height) (pollux--diff-windows d))))
           (beside (lambda (buffer)
                     (push (pollux--split (car (pollux--diff-windows d)) 'right buffer) (pollux--diff-windows d)))))
      (if inline
          (funcall above (car made))
        (setf (pollux--diff-left d)
              (car (pollux--make-buffer d (format "*on disk: %s*" file) (pollux--diff-original d))))
        (funcall above (pollux--diff-left d))
        (funcall beside (car made)))
      (when dirty (funcall beside dirty)))
    (setq pollux--shown d)
    (when-let ((left (pollux--diff-left d)))
      (with-current-buffer left
        (setq buffer-read-only t)
        (set-buffer-modified-p nil)))
    (with-current-buffer (car made)
      (buffer-enable-undo)
      (set-buffer-modified-p t)
      (setq buffer-read-only (and (pollux--diff-fixed d) t)))
    (pollux--unsettle d)
    (when (pollux--diff-fixed d)
      (pollux--say "%s is read-only: %s" (pollux--name d) (pollux--diff-fixed d)))
    (when dirty
      (pollux--say "%s has unsaved changes: they are kept"
                   (pollux--name d)))
    (pollux--draw d t)))

(defun pollux--hide (d)
  "Remove D from the screen."
  (pollux--end-ediff d)
  (when (eq pollux--shown d)
    (setq pollux--shown nil))
  (when (pollux--diff-pause d)
    (cancel-timer (pollux--diff-pause d)))
  (setf (pollux--diff-text d) (pollux--text d)
        (pollux--diff-settled d) nil
        (pollux--diff-overwrite d) nil
        (pollux--diff-hiding d) t)
  (cl-incf (pollux--diff-delays d))
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
  "Give COUNT lines from FROM on the FACE."
  (save-excursion
    (pollux--goto-line from)
    (let ((overlay (make-overlay (point) (progn (forward-line count) (point)))))
      (overlay-put overlay 'pollux t)
      (overlay-put overlay 'face face))))

(defun pollux--draw (d &optional first)
  "Highlight what differs in D; with FIRST, go to the first hunk too."
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
  "Removed lines that an inline view shows per hunk; they cannot be scrolled.")

(defun pollux--removed-text (lines)
  "Return the text of LINES, or of the first of them."
  (concat (mapconcat #'identity (seq-take lines pollux--most-removed) "\n") "\n"
          (let ((more (- (length lines) pollux--most-removed)))
            (if (> more 0) (format "... %d more; C-c C-e compares\n" more) ""))))

(defun pollux--draw-hunks (d)
  "Highlight the hunks of D."
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
  "Send the edited text at the next pause."
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
  "Note that D has been decided on."
  (setf (pollux--diff-ended d) t)
  (setq pollux--diffs (delq d pollux--diffs))
  (unless (or (pollux--diff-deciding d) (pollux--diff-finished d))
    (setf (pollux--diff-finished d) t)
    (run-at-time 0 nil #'pollux--finished d)))

(defun pollux--finished (d)
  "Remove D, and show the next diff."
  (if (active-minibuffer-window)
      ;; The minibuffer restores the windows when it exits.
      (letrec ((later (lambda ()
                        (remove-hook 'minibuffer-exit-hook later)
                        (run-at-time 0 nil #'pollux--finished d))))
        (add-hook 'minibuffer-exit-hook later))
    (pollux--hide d)
    (pollux--show-next)
    (force-mode-line-update t)
    (run-hooks 'pollux-diff-closed-hook)))

(defun pollux--keep-edits (d)
  "Send the text of D to Pollux, for the journal."
  (let ((text (pollux--text d)))
    (unless (equal text (pollux--diff-proposed d))
      (pollux--notify 'diff/edit (list :id (pollux--diff-id d) :content text)))))

(defun pollux--decline (d)
  "Reject D."
  (unless (pollux--diff-ended d)
    (pollux--keep-edits d)
    (pollux--finish d)
    (pollux--request 'diff/reject (list :id (pollux--diff-id d))
                     (lambda (err _)
                       (if err
                           (pollux--note "%s" err)
                         (pollux--say "%s: %s"
                                      (pcase (pollux--diff-state d)
                                        ("open" "rejected") ("orphaned" "discarded") (_ "kept"))
                                      (file-name-nondirectory (pollux--diff-path d))))))))

(defun pollux--decide (d)
  "Accept D."
  (when (pollux--diff-lost d)
    (user-error "The companion of this change has ended: C-x C-w saves the text, `pollux journal' has it too"))
  (unless (or (pollux--diff-ended d) (pollux--can-decide-p d))
    (pollux--refuse d))
  (setf (pollux--diff-deciding d) t)
  (let* ((pollux--kept nil)
         (agent-waits (equal (pollux--diff-state d) "open"))
         (result (unwind-protect
                    (pollux--call (if agent-waits 'diff/accept 'diff/save)
                                  (append (list :id (pollux--diff-id d) :content (pollux--text d))
                                          (and (pollux--diff-overwrite d)
                                               (list :overwrite (pollux--diff-overwrite d)))))
                  (setf (pollux--diff-deciding d) nil)
                  (when (pollux--diff-ended d) (pollux--finish d)))))
    (pcase (plist-get result :status)
      ("accepted"
       (when (buffer-live-p (pollux--diff-buffer d))
         (with-current-buffer (pollux--diff-buffer d) (set-buffer-modified-p nil)))
       (pollux--say "%s: %s" (if agent-waits "accepted" "saved")
                    (file-name-nondirectory (pollux--diff-path d)))
       (pollux--finish d)
       (when pollux--kept
         (pollux--say-kept pollux--kept)))
      ("conflict"
       (setf (pollux--diff-overwrite d) nil)
       (pcase (pollux--ask-conflict (plist-get result :message))
         (?o (setf (pollux--diff-overwrite d) (plist-get result :version))
             (pollux--decide d))
         (?c (setf (pollux--diff-overwrite d) (plist-get result :version)
                   (pollux--diff-original d) (or (plist-get result :disk) ""))
             (pollux--unsettle d)
             (when (buffer-live-p (pollux--diff-left d))
               (with-current-buffer (pollux--diff-left d)
                 (let ((inhibit-read-only t))
                   (pollux--fill (pollux--diff-original d)))))
             (if (get-buffer-window (pollux--diff-left d))
                 (pollux--say "the left side now shows the file on disk")
               (pollux-ediff)))))
      (_ (user-error "%s" (plist-get result :message))))))

(defun pollux--ask-conflict (message)
  "Ask with MESSAGE what to do about a changed file; return the key.
A key that was meant for the text must not overwrite."
  (let (asked key)
    (while (progn
             (setq asked (float-time)
                   key (car (read-multiple-choice
                             message '((?o "overwrite it") (?c "compare with it") (?n "not now")))))
             (and (eq key ?o) (< (* 1000 (- (float-time) asked)) pollux--settle))))
    key))

(defun pollux--agent-name (p)
  "Return the name of the agent that proposed the diff that P describes."
  (or (seq-find (lambda (name) (and name (not (string-empty-p name))))
                (list (plist-get p :agent) (plist-get p :client)))
      "the agent"))

(defun pollux--open-diff (p)
  "Handle diff/open: show the diff that P describes, or keep it pending."
  (if-let ((old (pollux--find (plist-get p :id))))
      (when (equal (pollux--diff-state old) "outside")
        (pollux-review old))
    (let ((d (make-pollux--diff
              :id (plist-get p :id) :path (plist-get p :path) :agent (pollux--agent-name p)
              :original (plist-get p :original) :exists (eq (plist-get p :exists) t)
              :state (plist-get p :state) :proposed (plist-get p :proposed)
              :fixed (plist-get p :readOnly)
              :text (or (plist-get p :content) (plist-get p :proposed)))))
      (setq pollux--diffs (append pollux--diffs (list d)))
      (pollux--forget-hidden)
      (cond
       ((pollux--replace d))
       ((equal (pollux--diff-state d) "outside") ; the user has chosen it
        (pollux-review d))
       ((not pollux--shown)
        (pollux--show-soon d)))
      (force-mode-line-update t)
      (run-hooks 'pollux-diff-opened-hook))))

(defun pollux--forget-hidden ()
  "Hide the shown diff if the user has closed its windows."
  (when (and pollux--shown (not (pollux--visible pollux--shown)))
    (pollux--hide pollux--shown)))

(defun pollux--show-next ()
  "Show the oldest pending diff, unless one is shown."
  (pollux--forget-hidden)
  (when (and pollux--diffs (not pollux--shown))
    (pollux--show-soon (car pollux--diffs))))

(defun pollux--show-soon (d)
  "Show D, or wait until there is a place for it."
  (let ((frame (pollux--frame)))
    (cond
     ((active-minibuffer-window)
      ;; The minibuffer restores the windows when it exits.
      (add-hook 'minibuffer-exit-hook #'pollux--show-later))
     ((not frame)
      (add-hook 'server-after-make-frame-hook #'pollux--show-later))
     (t
      (select-frame frame)
      (pollux--try d)))))

(defun pollux--frame ()
  "Return the selected frame, or another one that the user sees.
A daemon starts with a frame that is never on a screen, and may have no other."
  (seq-find (lambda (frame)
              (not (equal (terminal-name (frame-terminal frame)) "initial_terminal")))
            (cons (selected-frame) (frame-list))))

(defun pollux--show-later ()
  "Show the next diff once the minibuffer is left, or a frame is made."
  (remove-hook 'minibuffer-exit-hook #'pollux--show-later)
  (remove-hook 'server-after-make-frame-hook #'pollux--show-later)
  (run-at-time 0 nil #'pollux--show-next))

(defun pollux--frame-deleted (&rest _)
  "Show the diff elsewhere if the frame that showed it was deleted."
  (when (and pollux--shown (not (pollux--visible pollux--shown)))
    (pollux--show-later)))

(defun pollux--close-diff (id reason)
  "Handle diff/close: the diff with ID was closed for REASON; return its text."
  (when-let ((d (pollux--find id)))
    (prog1 (pollux--text d)
      (if (not (and (equal reason "superseded") (buffer-live-p (pollux--diff-buffer d))))
          (pollux--finish d)
        ;; Keep it until the new proposal arrives: the user may be typing in it.
        (setf (pollux--diff-ended d) t)
        (setq pollux--diffs (delq d pollux--diffs)
              pollux--superseded d)
        (run-at-time 2 nil (lambda ()
                             (when (eq pollux--superseded d)
                               (setq pollux--superseded nil)
                               (pollux--finish d))))))))

(defun pollux--replace (d)
  "Show D in place of a superseded diff of its file, and keep point in it."
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
  "Handle diff/changed with P: a new text or a new state."
  (when-let ((d (pollux--find (plist-get p :id))))
    (when (plist-get p :state)
      (setf (pollux--diff-state d) (plist-get p :state))
      (force-mode-line-update t))
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
  "Handle the end of the companion: keep the shown diff so that it can be saved."
  (dolist (d pollux--diffs)
    (setf (pollux--diff-lost d) t))
  (setq pollux--diffs (seq-filter #'pollux--diff-buffer pollux--diffs)))

(defun pollux--say-kept (path)
  "Tell the user about the agent's write to PATH, whose buffer has unsaved text."
  (setq pollux--kept path)
  (pollux--say "%s was written; your unsaved changes are kept (M-x revert-buffer reads the file)"
               (file-name-nondirectory path)))

(defun pollux--reload (path)
  "Handle file/changed: another program has written PATH; read it again."
  (when-let ((buffer (pollux--visiting path)))
    (with-current-buffer buffer
      (cond
       ((buffer-modified-p)
        (pollux--say-kept path))
       ((and (file-readable-p path) (not (verify-visited-file-modtime buffer)))
        (with-demoted-errors "pollux: %S"
          (let ((buffer-read-only buffer-read-only)) ; as `auto-revert-mode' does
            (revert-buffer t t t)))))))
  (pollux--listed))

;;;; Commands

(defun pollux--some ()
  "Return the current diff; without one, signal a `user-error'."
  (let ((d (pollux--current)))
    (when (and d (pollux--diff-ended d) (not (pollux--diff-lost d)))
      (setq d (car pollux--diffs))) ; its view is still on the screen
    (or d (user-error "No pending changes"))))

(defun pollux--visible (d)
  "Return non-nil if the proposal of D is in a window."
  (and (buffer-live-p (pollux--diff-buffer d))
       (get-buffer-window (pollux--diff-buffer d) 'visible)))

(defun pollux--seen ()
  "Return the current diff; one that is not in view is shown instead."
  (let ((d (pollux--some)))
    (unless (pollux--visible d)
      (pollux-review d)
      (user-error "%s" pollux--unseen))
    d))

;;;###autoload
(defun pollux-accept ()
  "Accept the change: the agent writes the file with your text."
  (interactive)
  (pollux--decide (pollux--seen)))

;;;###autoload
(defun pollux-reject ()
  "Reject the change."
  (interactive)
  (let ((d (pollux--seen)))
    (unless (pollux--can-decide-p d)
      (pollux--refuse d))
    (pollux--decline d)))

(defun pollux-review (d)
  "Show D in place of the diff on the screen, and go to it."
  (pollux--tidy d)
  (unless (and (buffer-live-p (pollux--diff-buffer d))
               (get-buffer-window (pollux--diff-buffer d)))
    (when-let ((other (or pollux--shown (and (pollux--diff-buffer d) d))))
      (pollux--notify 'diff/edit (list :id (pollux--diff-id other) :content (pollux--text other)))
      (pollux--hide other))
    (unless (pollux--try d)
      (user-error "%s cannot be shown: make room, then use M-x pollux-next" (pollux--name d))))
  (select-window (get-buffer-window (pollux--diff-buffer d))))

;;;###autoload
(defun pollux-next ()
  "Go to the change on the screen; from there, to the next pending one."
  (interactive)
  (let ((d (pollux--some)))
    (if (and (eq d (buffer-local-value 'pollux--this (window-buffer (selected-window))))
             (cdr pollux--diffs))
        (pollux-review (or (cadr (memq d pollux--diffs)) (car pollux--diffs)))
      (pollux-review d))))

;;;###autoload
(defun pollux-list ()
  "Choose a pending change, or one that was made outside Pollux."
  (interactive)
  (unless (or pollux--diffs pollux--outside)
    (user-error "No pending changes"))
  (let* ((choices (mapcar (lambda (d)
                            (cons (format "%s  %s%s" (pollux--name d) (pollux--diff-agent d)
                                          (if (equal (pollux--diff-state d) "orphaned")
                                              "  (disconnected)" ""))
                                  d))
                          pollux--diffs))
         (outside (mapcar (lambda (f)
                            (let ((path (plist-get f :path)))
                              (cons (format "%s  %s outside Pollux"
                                            (file-relative-name path (car (pollux--roots)))
                                            (plist-get f :change))
                                    path)))
                          pollux--outside))
         (choice (completing-read "Review: " (append choices outside) nil t))
         (path (cdr (assoc choice outside))))
    (if path
        (pollux--call 'outside/open (list :path path))
      (pollux-review (cdr (assoc choice choices))))))

(defmacro pollux--in-proposal (d &rest body)
  "Bind D to the current diff and run BODY in its buffer and window."
  (declare (indent 1) (debug (symbolp body)))
  `(let ((,d (pollux--some)))
     (unless (buffer-live-p (pollux--diff-buffer ,d))
       (user-error "No change on the screen"))
     (let ((window (get-buffer-window (pollux--diff-buffer ,d))))
       (with-selected-window (or window (selected-window))
         (with-current-buffer (pollux--diff-buffer ,d)
           ,@body)))))

(defun pollux--hunk (backwards)
  "Go to the next hunk, or to the previous one if BACKWARDS."
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
  "Go to the previous hunk."
  (interactive)
  (pollux--hunk t))

(defun pollux--take (what)
  "Restore the hunk at point from WHAT: the original or the proposed text."
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

(defun pollux-redo-hunk ()
  "Restore the hunk at point as it was proposed."
  (interactive)
  (pollux--take "proposed"))

(define-obsolete-function-alias 'pollux-accept-hunk #'pollux-redo-hunk "1.0")

(defun pollux-undo-hunk ()
  "Restore the hunk at point as it is on disk."
  (interactive)
  (pollux--take "original"))

(defun pollux-ediff ()
  "Compare the change with the file in Ediff."
  (interactive)
  (require 'ediff)
  (let ((d (pollux--some)))
    (unless (buffer-live-p (pollux--diff-left d))
      (setf (pollux--diff-left d)
            (car (pollux--make-buffer d (format "*on disk: %s*" (file-name-nondirectory (pollux--diff-path d)))
                                      (pollux--diff-original d)))))
    (pollux--end-ediff d)
    (let ((windows (current-window-configuration)))
      (ediff-buffers (pollux--diff-left d) (pollux--diff-buffer d)
                     (list (lambda ()
                             (setf (pollux--diff-ediff d) (current-buffer))
                             (add-hook 'ediff-cleanup-hook (lambda () (setf (pollux--diff-ediff d) nil)) nil t)
                             (add-hook 'ediff-quit-hook (lambda () (pollux--after-ediff d windows)) t t)))))))

(defun pollux--after-ediff (d windows)
  "Restore WINDOWS, as they were before D was shown in Ediff."
  (when (frame-live-p (window-configuration-frame windows))
    (set-window-configuration windows))
  (when (buffer-live-p (pollux--diff-buffer d))
    (pop-to-buffer (pollux--diff-buffer d))))

(defun pollux--end-ediff (d)
  "End the Ediff session of D, if there is one.
Its buffers must still be there."
  (when-let ((control (pollux--diff-ediff d)))
    (when (buffer-live-p control)
      (let ((ediff-keep-variants t))
        (with-demoted-errors "pollux: %S"
          (with-current-buffer control (ediff-really-quit nil)))))))

;;;###autoload
(defun pollux-status ()
  "Show the status of Pollux."
  (interactive)
  (let ((s (pollux--call 'status '(:commands "M-x pollux-"))))
    ;; A Pollux of another version may send no text.
    (message "%s" (string-trim (or (plist-get s :text)
                                   (format "Pollux %s, port %s" (plist-get s :version) (plist-get s :port)))))))

(defun pollux-log ()
  "Show log messages."
  (interactive)
  (with-current-buffer (get-buffer-create "*pollux log*")
    (let ((inhibit-read-only t))
      (erase-buffer)
      (insert (with-current-buffer (get-buffer-create " *pollux log*") (buffer-string))))
    (special-mode)
    (pop-to-buffer (current-buffer))))

;;;; The terminal

(defconst pollux--enter-delay 0.3
  "Seconds after a paste is shown: an earlier Enter would become part of it.
A busy agent shows it late and needs longer, so twice the time until
then is added.")
(defconst pollux--poll-interval 0.1 "Seconds between two checks of the terminal's screen.")
(defconst pollux--max-polls 50 "Checks before a question counts as not accepted.")
(defconst pollux--shown-size 10 "Characters of a prompt that the agent must show.")

;; Each agent has its own terminal.  A terminal is a buffer.

(defvar pollux--terminals nil "The agents' terminals, the last used one first.")
(defvar-local pollux--agent nil "The name of the terminal's agent; empty if `pollux run' chose it.")

(defun pollux--live-p (buffer)
  "Return non-nil if the agent of BUFFER is alive."
  (and (buffer-live-p buffer) (process-live-p (get-buffer-process buffer))))

(defun pollux--agent-of (buffer)
  "Return the name of the agent of BUFFER."
  (buffer-local-value 'pollux--agent buffer))

(defun pollux--terminal (&optional agent)
  "Return the terminal of AGENT if it is alive.
Without AGENT, return the last used one."
  (seq-find (lambda (buffer)
              (and (pollux--live-p buffer)
                   (or (not agent) (equal agent (pollux--agent-of buffer)))))
            pollux--terminals))

(defun pollux--default-agent ()
  "Return the name of the agent to start if none is named."
  (let ((last (seq-find #'buffer-live-p pollux--terminals)))
    (cond (last (pollux--agent-of last))
          (pollux-cli (file-name-nondirectory (car pollux-cli)))
          (t ""))))

(defun pollux--arguments (agent)
  "Return the arguments of `pollux' that start AGENT."
  (append '("run" "--attach")
          (cond ((and pollux-cli (equal agent (file-name-nondirectory (car pollux-cli))))
                 (cons "--" pollux-cli))
                ((not (string-empty-p agent)) (list "--" agent)))))

;; The packages that can run a terminal, the preferred ones first.  Each one's
;; buffer has the terminal's process, which becomes the agent.

(defconst pollux--backends
  '((eat eat-exec pollux--start-eat "NonGNU ELPA")
    (vterm vterm-mode pollux--start-vterm "MELPA")
    (term term-exec pollux--start-term "Emacs"))
  "Package, one of its functions, ours that starts an agent in it, and its archive.")

(defun pollux--load-backend (backend)
  "Load BACKEND, and return non-nil if it is installed."
  (and (require backend nil t)
       (fboundp (nth 1 (assq backend pollux--backends)))))

(defun pollux--works-p (backend)
  "Return non-nil if BACKEND is installed and complete, without asking the user.
Vterm without its compiled module offers to compile it."
  (condition-case err
      (cl-letf (((symbol-function 'y-or-n-p) #'ignore))
        (pollux--load-backend backend))
    (error (pollux--note "%s does not work: %s" backend (error-message-string err))
           nil)))

(defun pollux--terminals-p ()
  "Return non-nil if programs can run in a terminal of Emacs."
  (not (eq system-type 'windows-nt)))

(defun pollux--backend ()
  "Load the package for the agent's terminal, and return it."
  (let ((chosen pollux-terminal-backend))
    (cond ((not (pollux--terminals-p))
           (user-error "Emacs for Windows has no terminal: run `pollux run --attach' in %s"
                       (car (pollux--roots))))
          ((memq chosen '(nil auto))
           (seq-find #'pollux--works-p (mapcar #'car pollux--backends)))
          ((not (assq chosen pollux--backends))
           (user-error "Set pollux-terminal-backend to auto, eat, vterm or term, not to %S" chosen))
          ((not (pollux--load-backend chosen))
           (user-error "The package `%s' is not installed: install it from %s, or set pollux-terminal-backend to auto"
                       chosen (nth 3 (assq chosen pollux--backends))))
          (t chosen))))

(defun pollux--start-eat (buffer name program arguments)
  "Start PROGRAM with ARGUMENTS in BUFFER with Eat, as NAME."
  (eat-mode)
  (let ((eat-kill-buffer-on-exit nil)) ; the user reads why the agent ended
    (eat-exec buffer name program nil arguments)))

(defun pollux--start-vterm (buffer _name program arguments)
  "Start PROGRAM with ARGUMENTS in BUFFER with vterm."
  (let ((vterm-shell (mapconcat #'shell-quote-argument (cons program arguments) " "))
        (vterm-min-window-width 1) ; vterm cuts lines in narrower windows
        (vterm-kill-buffer-on-exit nil)) ; the user reads why the agent ended
    (vterm-mode))
  (setq-local vterm-min-window-width 1
              vterm-buffer-name-string nil
              mode-line-process '(":%s")) ; "no process" at its end, as with the others
  (add-function :around (process-sentinel (get-buffer-process buffer)) #'pollux--vterm-ended))

(defun pollux--vterm-ended (sentinel &rest args)
  "Call vterm's SENTINEL with ARGS, but keep the buffer."
  (let ((vterm-kill-buffer-on-exit nil))
    (apply sentinel args)))

(defun pollux--start-term (buffer name program arguments)
  "Start PROGRAM with ARGUMENTS in BUFFER with Term, as NAME."
  (term-mode)
  (term-exec buffer name program nil arguments)
  (term-char-mode))

(defun pollux--screen-start ()
  "Return the position of the screen in the terminal's buffer."
  (cond ((derived-mode-p 'eat-mode) (eat-term-display-beginning eat-terminal))
        ((derived-mode-p 'vterm-mode) ; the screen is the last lines
         (let ((window (get-buffer-window nil t)))
           (save-excursion
             (goto-char (point-max))
             (line-beginning-position
              (- 2 (if window (window-body-height window) (frame-height)))))))
        ((markerp term-home-marker) (marker-position term-home-marker))
        (t (point-min))))

(defun pollux--send-text (buffer text)
  "Send TEXT to the agent of BUFFER, as if it were typed.
The user may be reading BUFFER: vterm shows no output then, and Term shows
it in the wrong places."
  (let ((process (get-buffer-process buffer)))
    (with-current-buffer buffer
      (cond ((bound-and-true-p vterm-copy-mode)
             (condition-case nil
                 (vterm-copy-mode -1)
               (end-of-buffer ; vterm looks for its cursor after the last line, and stops
                (use-local-map vterm-mode-map)
                (vterm-send-start))))
            ((and (derived-mode-p 'term-mode) (term-in-line-mode))
             (goto-char (process-mark process)) ; Term sends the agent the text from there to point
             (term-char-mode))))
    (process-send-string process text)))

(defun pollux--start-terminal (agent)
  "Start AGENT in a terminal, and return its buffer."
  (unless (pollux-ready-p)
    (user-error "Pollux is not running: use M-x pollux-start; if that fails, see M-x pollux-log"))
  (let ((backend (pollux--backend))
        (name (format "*pollux %s*" (if (string-empty-p agent) "agent" agent))))
    (when-let ((old (get-buffer name)))
      (kill-buffer old))
    (let ((default-directory (file-name-as-directory (car (pollux--roots))))
          (buffer (get-buffer-create name)))
      (pollux--display-terminal buffer)
      (with-current-buffer buffer
        (funcall (nth 2 (assq backend pollux--backends))
                 buffer (string-trim name "\\*" "\\*") (pollux--program) (pollux--arguments agent))
        (setq pollux--agent agent)
        (set-process-query-on-exit-flag (get-buffer-process buffer) nil))
      buffer)))

(defun pollux--display-terminal (buffer)
  "Show BUFFER on the right, go to it, and note that it was used last."
  (setq pollux--terminals (cons buffer (delq buffer pollux--terminals)))
  (select-window
   (or (get-buffer-window buffer)
       (display-buffer buffer `((display-buffer-in-direction)
                                (direction . rightmost)
                                (window-width . ,pollux-terminal-width))))))

(defun pollux--agents-by-name ()
  "Return the names of the agents that can start, those that are installed first."
  (let ((all (mapcar (lambda (agent) (plist-get agent :command)) (plist-get pollux--info :agents))))
    (append (seq-filter #'executable-find all) (seq-remove #'executable-find all))))

(defun pollux--read-agent ()
  "Ask for the name of an agent."
  (let (names)
    (completing-read "Agent: " (lambda (string predicate action)
                                 (unless names ; a companion that starts sends them soon
                                   (setq names (pollux--agents-by-name)))
                                 (if (eq action 'metadata)
                                     '(metadata (display-sort-function . identity)
                                                (cycle-sort-function . identity))
                                   (complete-with-action action names string predicate)))
                     nil t)))

;;;###autoload
(defun pollux-open (&optional agent)
  "Show the terminal of AGENT; start it if it is not running.
Without a name, it is the last used agent, or the one that `pollux run' starts.
With a prefix argument, ask for the name."
  (interactive (list (when current-prefix-arg (pollux--read-agent))))
  (let ((buffer (pollux--terminal agent)))
    (if buffer
        (pollux--display-terminal buffer)
      (pollux--start-terminal (or agent (pollux--default-agent))))))

;;;###autoload
(defun pollux-toggle ()
  "Show or hide the terminal of the last used agent."
  (interactive)
  (let ((window (and (pollux--terminal) (get-buffer-window (pollux--terminal)))))
    (cond ((not window) (pollux-open))
          ((eq window (frame-root-window)) (bury-buffer (window-buffer window)))
          (t (delete-window window)))))

(defun pollux--waits-p (buffer prompt)
  "Return non-nil if the agent of BUFFER is ready for PROMPT."
  (when (pollux--live-p buffer)
    (with-current-buffer buffer
      (save-excursion
        (goto-char (pollux--screen-start))
        (search-forward (plist-get prompt :ready) nil t)))))

(defun pollux--times-shown (buffer prompt)
  "Return how often BUFFER has the beginning or the end of PROMPT.
What agents show in place of a long paste counts too.  Spaces do not:
agents wrap lines."
  (if (not (pollux--live-p buffer))
      0
    (let* ((squeeze (lambda (text) (replace-regexp-in-string "[[:space:]\n]" "" text)))
           (shown (funcall squeeze (with-current-buffer buffer
                                     (buffer-substring-no-properties (pollux--screen-start) (point-max)))))
           (text (funcall squeeze (plist-get prompt :text)))
           (size (min pollux--shown-size (length text))))
      (cl-loop for part in (list (substring text 0 size) (substring text (- (length text) size)) "[Past")
               sum (cl-loop with start = 0
                            while (string-match (regexp-quote part) shown start)
                            do (setq start (max (1+ start) (match-end 0)))
                            count t)))))

(defun pollux--enter (buffer prompt before count)
  "Press Enter once PROMPT is on the screen of BUFFER; check COUNT times.
The agent reads its input late while it starts, and a question that it
asks would take Enter for the answer.  BEFORE is what `pollux--times-shown'
returned before the paste."
  (cond
   ((not (pollux--live-p buffer)))
   ((> (pollux--times-shown buffer prompt) before)
    (run-at-time (+ pollux--enter-delay (* 2 pollux--poll-interval (- pollux--max-polls count))) nil
                 (lambda ()
                   (if (> (pollux--times-shown buffer prompt) before)
                       (pollux--send-text buffer "\r")
                     (pollux--enter buffer prompt before 0)))))
   ((> count 0) (run-at-time pollux--poll-interval nil #'pollux--enter buffer prompt before (1- count)))
   (t (pollux--say "the agent does not show your question. Look at its terminal before you press Enter: %s"
                   (plist-get prompt :text)))))

(defun pollux--type (buffer prompt)
  "Type PROMPT into BUFFER, the agent's terminal."
  (let ((before (pollux--times-shown buffer prompt)))
    (pollux--send-text buffer (plist-get prompt :paste))
    (when (eq (plist-get prompt :submit) t)
      (pollux--enter buffer prompt before pollux--max-polls))))

(defvar pollux--max-waits 600
  "Checks before an agent that was started counts as not ready.
They take about a minute: the user may have to sign in first, or to
trust the folder.  Tests set it.")

(defun pollux--type-when-ready (buffer prompt &optional count)
  "Type PROMPT into BUFFER once the agent, which has just been started, is ready.
Check COUNT times, by default `pollux--max-waits'."
  (cond
   ((not (pollux--live-p buffer))
    (pollux--say "the agent has ended; your question was: %s" (plist-get prompt :text)))
   ((pollux--waits-p buffer prompt) (pollux--type buffer prompt))
   ((eql count 0)
    (pollux--say "the agent is still not ready: send your question again when it is. It was not sent: %s" (plist-get prompt :text)))
   (t (run-at-time pollux--poll-interval nil #'pollux--type-when-ready
                   buffer prompt (1- (or count pollux--max-waits))))))

(defun pollux--last-line ()
  "Return the number of the last line of the region."
  (line-number-at-pos (if (= (region-end) (region-beginning))
                          (region-end)
                        (1- (region-end)))
                      t))

(defun pollux--target ()
  "Return Pollux's parameters for the file and the lines of the region."
  (append
   (when buffer-file-name (list :path (expand-file-name buffer-file-name)))
   (when (and buffer-file-name (use-region-p))
     (list :line (line-number-at-pos (region-beginning) t)
           :endLine (pollux--last-line)))))

(defun pollux--running-terminals ()
  "Return the terminals in which agents run, as Pollux wants to know them."
  (cl-loop for buffer in pollux--terminals
           when (pollux--live-p buffer)
           vconcat (list (list :pid (process-id (get-buffer-process buffer))
                               :agent (pollux--agent-of buffer)))))

(defun pollux--send (params)
  "Send an agent the file, the lines or the question in PARAMS.
Start an agent if none is running."
  (when (and (plist-get params :path) (buffer-modified-p))
    (pollux--say "the agent reads the file as last saved"))
  (let* ((result (pollux--call 'send (append params (list :terminals (pollux--running-terminals))
                                             (when (pollux--terminals-p)
                                               (list :start (pollux--default-agent))))))
         (prompt (plist-get result :prompt))
         (agent (plist-get result :agent)))
    (pcase (plist-get result :status)
      ("terminal"
       (let ((buffer (seq-find (lambda (buffer)
                                 (and (pollux--live-p buffer)
                                      (eql (plist-get result :pid) (process-id (get-buffer-process buffer)))))
                               pollux--terminals)))
         (if (not buffer)
             (pollux--say "the agent has ended; your question was: %s" (plist-get prompt :text))
           (pollux--display-terminal buffer)
           (pollux--type buffer prompt))))
      ("start"
       (pollux--type-when-ready
        (pollux--start-terminal (if (string-empty-p agent) (pollux--default-agent) agent))
        prompt))
      (_
       (pollux--say "sent to %s%s" agent
                    (if (plist-get result :pane) (format " in tmux pane %s" (plist-get result :pane)) ""))))))

;;;###autoload
(defun pollux-send (question &optional agent)
  "Send the region's lines, or the file, to an agent.
With a QUESTION, ask it about them.  Without one, the agent's input line shows
the file's name, so that you can continue.  With a prefix argument, ask for the
name of the AGENT."
  (interactive (list (read-string "Ask the agent: ")
                     (when current-prefix-arg (pollux--read-agent))))
  (when (and (not buffer-file-name) (string-empty-p question))
    (user-error "This buffer is not a file: enter a question"))
  (pollux--send (append (list :question question) (when agent (list :agent agent)) (pollux--target))))

;;;; Questions

(defconst pollux--askable '("gemini" "codex" "claude" "copilot" "qwen" "opencode")
  "The agents that can be asked.")

(defvar pollux--question nil "The process that answers a question.")

(defvar-local pollux--answered nil "Whether the conversation in the buffer can be continued.")

(defvar pollux-answer-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map "q" #'pollux-answer-close)
    map)
  "Keys in the buffer with an agent's answers.")

(define-derived-mode pollux-answer-mode text-mode "Answer"
  "Mode of the buffer with an agent's answers, which are Markdown."
  (visual-line-mode)
  (setq buffer-read-only t)
  (add-hook 'kill-buffer-hook #'pollux--end-question nil t))

(defun pollux--end-question ()
  "End the question in progress."
  (when (process-live-p pollux--question)
    (signal-process pollux--question 'SIGTERM))
  (setq pollux--question nil))

(defun pollux-answer-close ()
  "End the question in progress, and close the buffer with the answers."
  (interactive)
  (quit-window t))

(defun pollux--add-answer (buffer text)
  "Append TEXT to the BUFFER with the answers."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (let ((inhibit-read-only t))
        (save-excursion
          (goto-char (point-max))
          (insert text))))))

(defun pollux--excerpt (directory)
  "Return the lines of the region as a part of a question about DIRECTORY."
  (if (not (use-region-p))
      ""
    (format "%s, lines %d to %d:\n\n```\n%s\n```\n\n"
            (if buffer-file-name (file-relative-name buffer-file-name directory) (buffer-name))
            (line-number-at-pos (region-beginning) t) (pollux--last-line)
            (buffer-substring-no-properties (region-beginning) (region-end)))))

;;;###autoload
(defun pollux-ask (question &optional agent)
  "Ask an agent a QUESTION, with the region, and show its answer in a buffer.
The agent can read the files here, and change nothing.  Asking again continues
the conversation until the buffer is closed.  With a prefix argument, ask for
the name of the AGENT."
  (interactive (list (read-string "Ask an agent: ")
                     (when current-prefix-arg
                       (completing-read "Agent: " pollux--askable nil t))))
  (when (string-empty-p question)
    (user-error "Enter a question"))
  (when (process-live-p pollux--question)
    (user-error "A question is still being answered: press q in its window to end it"))
  (let* ((buffer (get-buffer-create "*pollux answer*"))
         (more (> (buffer-size buffer) 0))
         (directory (if more
                        (buffer-local-value 'default-directory buffer)
                      (file-name-as-directory (or (pollux--project-root default-directory)
                                                  (car (pollux--roots))))))
         (prompt (concat (pollux--excerpt directory) question))
         (command (append (list (pollux--program) "ask" "--stream")
                          (when agent (list "--agent" agent))
                          (when (buffer-local-value 'pollux--answered buffer)
                            (list "--continue")))))
    (with-current-buffer buffer
      (unless (derived-mode-p 'pollux-answer-mode)
        (pollux-answer-mode))
      (setq default-directory directory))
    (display-buffer buffer)
    (pollux--add-answer buffer (concat (when more "\n") "> " question "\n\n"))
    (let ((default-directory directory)
          (errors (generate-new-buffer " *pollux ask errors*")))
      (setq pollux--question
            (make-process :name "pollux-ask" :command command :buffer nil
                          :connection-type 'pipe :coding 'utf-8-emacs-unix :noquery t
                          :stderr (make-pipe-process
                                   :name "pollux-ask-errors" :noquery t :coding 'utf-8-emacs-unix
                                   :buffer errors
                                   :sentinel (lambda (_ _) (kill-buffer errors))
                                   :filter (lambda (_ text) (pollux--add-answer buffer (concat "\n" text))))
                          :filter (lambda (_ text) (pollux--add-answer buffer text))
                          :sentinel
                          (lambda (process _)
                            (pollux--add-answer buffer "\n* * *\n")
                            (when (and (buffer-live-p buffer) (eq (process-status process) 'exit)
                                       (= 0 (process-exit-status process)))
                              (with-current-buffer buffer
                                (setq pollux--answered t)))))))
    (process-send-string pollux--question prompt)
    (process-send-eof pollux--question)))

(defun pollux--problems ()
  "Return the diagnostics of the buffer, for a question."
  (mapcar (lambda (d)
            (let ((severity (plist-get d :severity)))
              (list :line (plist-get (plist-get (plist-get d :range) :start) :line)
                    :severity (if (equal severity "information") "info" severity)
                    :message (plist-get d :message))))
          (pollux--diagnostics)))

;;;###autoload
(defun pollux-diagnostics (question)
  "Ask the agent QUESTION about the diagnostics of the region, or the file."
  (interactive (list (read-string "Ask the agent: " nil nil "Fix these.")))
  (let* ((target (pollux--target))
         (from (plist-get target :line))
         (problems (seq-filter (lambda (p)
                                 (or (not from)
                                     (<= from (plist-get p :line) (plist-get target :endLine))))
                               (pollux--problems))))
    (unless problems
      (user-error "No diagnostics from Flymake or Flycheck here"))
    (pollux--send (append (list :question question :problems (vconcat problems)) target))))

;;;; The mode

(defvar pollux-command-map
  (let ((map (make-sparse-keymap)))
    (define-key map "o" #'pollux-open)
    (define-key map "t" #'pollux-toggle)
    (define-key map "s" #'pollux-send)
    (define-key map "k" #'pollux-ask)
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
  "Choose a command with one key."
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
      (list 'menu-item "Pollux" (make-sparse-keymap "Pollux")))
    (dolist (item '(("Log" . pollux-log) ("Status" . pollux-status) ("List Changes" . pollux-list)
                    ("Reject" . pollux-reject) ("Accept" . pollux-accept) ("Next Change" . pollux-next)
                    ("Send Diagnostics" . pollux-diagnostics) ("Send..." . pollux-send)
                    ("Open" . pollux-open)))
      (define-key map (vector 'menu-bar 'tools 'pollux (cdr item)) item))
    map)
  "The menu of `pollux-mode'; it binds no keys.")

(defun pollux-mode-line ()
  "Return the number of pending diffs, or that an agent is connected."
  (cond (pollux--diffs (format " Pollux[%d]" (length pollux--diffs)))
        (pollux--agents " Pollux")
        (t "")))

;;;###autoload
(define-minor-mode pollux-mode
  "Run a companion for Gemini CLI and other agents."
  :global t
  :lighter (:eval (pollux-mode-line))
  :keymap pollux-mode-map
  (if pollux-mode
      (pollux-start)
    (pollux-stop)))

(provide 'pollux)
;;; pollux.el ends here
