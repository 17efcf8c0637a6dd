-- The changes that agents propose. One at a time is on the screen, the others are
-- pending. Pollux computes the hunks and carries out the decisions; this file handles
-- buffers and windows.
--
-- A view never takes the focus, so that keys still reach the terminal that the user
-- types in. The proposal's buffer is modified from the start: `:q` complains, `:w`,
-- `:wq` and `:x` accept, and if the buffer is closed without being written, the change
-- is rejected.
--
-- A change can be decided on once it has been in view for a while without a key press,
-- because a key may have been meant for another change. After that it stays ready while
-- it is in view.
local client = require("pollux.client")
local colors = require("pollux.colors")
local config = require("pollux.config")
local context = require("pollux.context")

local M = {}

-- The pending diffs, the oldest first: { diff, ended, and while it is shown: buf, left, wins, ... }
local diffs = {}
local views = {} -- diffs by buffer, also those of a companion that has ended
local shown -- the one on the screen
local entered = vim.api.nvim_get_current_win() -- the window that the user entered last
local typed -- the command line that is being executed
local begun = 0 -- when the user started to type it

local ns = vim.api.nvim_create_namespace("pollux")
local superseded -- a view that waits for the proposal that replaces it
local SUCCESSOR_TIMEOUT = 2000 -- ms that it waits
local EDIT_DELAY = 200 -- ms without typing, after which the text is sent
local MIN_COLUMNS = 100 -- for two texts side by side
-- The delay consists of several timers: if Neovim was busy, it reads the keys that were
-- pressed meanwhile before the next timer.
local SETTLE_PARTS = 5
M.settle = 500 -- ms until a change can be decided on

-- None starts with <C-c>, with which many users leave Insert mode.
M.keys = {
  { "]c", "next-hunk" },
  { "[c", "previous-hunk" },
  { "do", "undo-hunk" },
  { "dp", "redo-hunk" },
  { "ZZ", "accept" },
}

local function valid_buf(buf)
  return buf and vim.api.nvim_buf_is_valid(buf) and vim.api.nvim_buf_is_loaded(buf)
end

--- Returns a text as a buffer's lines, and the settings with which the buffer returns
--- it byte for byte.
local function lines_of(text)
  local bom = text:sub(1, 3) == "\239\187\191"
  if bom then
    text = text:sub(4)
  end
  local _, lf = text:gsub("\n", "")
  local _, crlf = text:gsub("\r\n", "")
  local dos = lf > 0 and lf == crlf
  if dos then
    text = text:gsub("\r\n", "\n")
  end
  local eol = text:sub(-1) == "\n"
  if eol then
    text = text:sub(1, -2)
  end
  return vim.split(text, "\n", { plain = true }), { dos = dos, eol = eol, bom = bom, blank = text == "" and eol }
end

local function fill(buf, text)
  local lines, form = lines_of(text)
  vim.api.nvim_buf_set_lines(buf, 0, -1, false, lines)
  vim.bo[buf].fileformat = form.dos and "dos" or "unix"
  vim.bo[buf].fixendofline = false
  vim.bo[buf].endofline = form.eol
  return form
end

--- Returns the text of a view as it should be on disk.
local function text_of(d)
  if not valid_buf(d.buf) then
    return d.text
  end
  local lines = vim.api.nvim_buf_get_lines(d.buf, 0, -1, false)
  if #lines == 1 and lines[1] == "" and not d.form.blank then
    return ""
  end
  local nl = vim.bo[d.buf].fileformat == "dos" and "\r\n" or "\n"
  return (d.form.bom and "\239\187\191" or "") .. table.concat(lines, nl) .. (vim.bo[d.buf].endofline and nl or "")
end

local function find(id)
  for _, d in ipairs(diffs) do
    if d.diff.id == id then
      return d
    end
  end
end

-- Returns the diff whose view the user is in.
local function inside()
  local d = views[vim.api.nvim_get_current_buf()]
  return d and not d.ended and d or nil
end

--- Returns the diff that a command applies to: the current buffer's, otherwise the one
--- shown, otherwise the oldest.
function M.current()
  return inside() or shown or diffs[1]
end

--- Returns the path of the current diff if it can be decided on, otherwise "".
function M.ready()
  local d = M.current()
  return d and d.settled and d.diff.path or ""
end

--- Returns the pending diffs, the oldest first.
function M.waiting()
  return vim.list_slice(diffs)
end

local function name(d)
  return vim.fn.fnamemodify(d.diff.path, ":~:.")
end
M.name = name

--- Returns the name of the agent that proposed a diff.
function M.agent(d)
  for _, agent in ipairs({ d.diff.agent or "", d.diff.client or "" }) do
    if agent ~= "" then
      return agent
    end
  end
  return "the agent"
end

local function highlight(buf, path)
  local ft
  if vim.fn.has("nvim-0.8") == 1 then
    ft = vim.filetype.match({ filename = path, buf = buf })
  else
    local target = context.buffers(path)[1]
    ft = target and vim.bo[target].filetype
  end
  if not ft or ft == "" then
    return
  end
  -- Not 'filetype': its plugins and language servers expect real files.
  if vim.treesitter and vim.treesitter.language and vim.treesitter.language.get_lang then
    local lang = vim.treesitter.language.get_lang(ft) or ft
    if pcall(vim.treesitter.start, buf, lang) then
      return
    end
  end
  vim.bo[buf].syntax = ft
end

local function scratch(d, what, buftype, text)
  local buf = vim.api.nvim_create_buf(false, true)
  local uri = ("pollux://%s/%s/%s"):format(d.diff.id, what, vim.fn.fnamemodify(d.diff.path, ":t"))
  vim.api.nvim_buf_set_name(buf, uri)
  views[buf] = d
  vim.bo[buf].buftype = buftype
  vim.bo[buf].bufhidden = "wipe"
  vim.bo[buf].swapfile = false
  local levels = vim.bo[buf].undolevels
  vim.bo[buf].undolevels = -1
  local form = fill(buf, text)
  vim.bo[buf].undolevels = levels
  local target = context.buffers(d.diff.path)[1]
  if target then
    for _, o in ipairs({ "tabstop", "shiftwidth", "softtabstop", "expandtab", "autoindent" }) do
      vim.bo[buf][o] = vim.bo[target][o]
    end
  end
  pcall(highlight, buf, d.diff.path)
  return buf, form, uri
end

-- Returns the window next to which a diff opens: the one with the file, otherwise the
-- last one with a file, otherwise the first that is not a terminal; nil if there is none.
local function beside(path)
  local best, rank = nil, 0
  local last = vim.fn.win_getid(vim.fn.winnr("#"))
  local target = context.buffers(path)[1]
  for _, win in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
    local buf = vim.api.nvim_win_get_buf(win)
    if vim.api.nvim_win_get_config(win).relative == "" and vim.bo[buf].buftype ~= "terminal" then
      local r = 1
      if buf == target then
        r = 4
      elseif vim.bo[buf].buftype == "" then
        r = win == last and 3 or 2
      end
      if r > rank then
        best, rank = win, r
      end
    end
  end
  return best
end

local function split(win, how, buf)
  local new
  vim.api.nvim_win_call(win, function()
    vim.cmd("noautocmd keepalt keepjumps " .. how .. " split")
    new = vim.api.nvim_get_current_win()
    vim.wo[new].winfixheight, vim.wo[new].winfixwidth = false, false
  end)
  vim.api.nvim_win_set_buf(new, buf)
  return new
end

-- Calls f, which opens or closes windows of d, so that only the neighbouring window
-- changes its size. 'equalalways' would resize the terminal too, and wrap its text
-- again.
local function keeping_sizes(f, d)
  local beside_it = d.base and vim.api.nvim_win_is_valid(d.base) and d.base or beside(d.diff.path)
  local fixed = {}
  for _, win in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
    if win ~= beside_it and not vim.tbl_contains(d.wins or {}, win) then
      fixed[win] = { vim.wo[win].winfixwidth, vim.wo[win].winfixheight }
      vim.wo[win].winfixwidth, vim.wo[win].winfixheight = true, true
    end
  end
  local results = { pcall(f, d) }
  for win, was in pairs(fixed) do
    if vim.api.nvim_win_is_valid(win) then
      vim.wo[win].winfixwidth, vim.wo[win].winfixheight = was[1], was[2]
    end
  end
  return unpack(results)
end

-- Executes a command in a window, if that is still there.
local function execute(win, command)
  if vim.api.nvim_win_is_valid(win) then
    vim.api.nvim_win_call(win, function()
      vim.cmd(command)
    end)
  end
end

-- Returns the window of a proposal.
local function window(d)
  for _, win in ipairs(d.wins or {}) do
    if vim.api.nvim_win_is_valid(win) and vim.api.nvim_win_get_buf(win) == d.buf then
      return win
    end
  end
end

-- Shows a text above a window. A narrow window cuts the tail at its start.
local function caption(win, head, tail)
  local text = ""
  if head .. tail ~= "" then
    text = (" %s%%<%s"):format(head:gsub("%%", "%%%%"), (tail:gsub("%%", "%%%%")))
  end
  if vim.fn.exists("+winbar") == 1 then
    vim.wo[win].winbar = text
  else
    vim.wo[win].statusline = text
  end
end

-- Says what is special about a diff, in one message: after two, Neovim asks for Enter.
local function remark(d)
  local remarks = {}
  if d.dirty then
    table.insert(remarks, "has unsaved changes: they are kept")
  end
  if d.diff.readOnly then
    table.insert(remarks, "is read-only: " .. d.diff.readOnly)
  end
  if #remarks > 0 then
    client.say(name(d) .. " " .. table.concat(remarks, "; it "), d.dirty and "warning" or "info")
  end
end

-- Sets the title above the proposal. It always has the keys. In a narrow window the name of
-- the agent is missing, and the path has no start.
local function caption_of(d)
  local win = window(d)
  if not win then
    return
  end
  local who, how = M.agent(d) .. " proposes: ", " (:w accepts, :q! rejects)"
  if d.lost then
    who, how = "", ": its companion has ended; :w FILE saves the text"
  elseif d.diff.state == "accepted" then
    who, how = "", ": accepted; waiting for the agent to write the file"
  elseif d.diff.state == "outside" then
    who, how = "changed outside Pollux: ", " (:w saves this text, :q! keeps the file)"
  elseif d.diff.state == "orphaned" then
    who, how = M.agent(d) .. " proposed: ", " (agent has ended; :w saves, :q! discards)"
  elseif d.diff.readOnly then
    how = " (read-only; :w accepts, :q! rejects)"
  end
  if not d.lost and d.diff.state ~= "accepted" and not d.settled then
    how = " (look at it, then decide)"
  end
  local path = name(d)
  local room = vim.api.nvim_win_get_width(win) - 1 - #who - #how
  caption(win, room < math.min(#path, 20) and "" or who, path .. how)
end

local function in_view(d)
  return valid_buf(d.buf) and vim.fn.bufwinid(d.buf) ~= -1
end

-- Starts the delay after which d can be decided on.
local function unsettle(d)
  local was = d.settled
  d.settled = nil
  d.delays = (d.delays or 0) + 1
  if was then
    caption_of(d)
  end
  local delays, part = d.delays, 0
  local function rest()
    vim.defer_fn(function()
      if d.delays ~= delays or not in_view(d) then
        return
      end
      part = part + 1
      if part < SETTLE_PARTS then
        return rest()
      end
      d.settled = vim.loop.hrtime()
      caption_of(d)
      client.event("DiffReady")
    end, M.settle / SETTLE_PARTS)
  end
  rest()
end

-- Reports whether d can be decided on. A command counts from when the user started to
-- type it.
local function can_decide(d)
  return d.lost or d.diff.state ~= "accepted" and d.settled ~= nil and (not typed or begun >= d.settled)
end

-- Tells the user why the attempt decided nothing.
local function refuse(d)
  if d.diff.state == "accepted" then
    return client.say(name(d) .. " is accepted; waiting for the agent to write the file", "warning")
  end
  unsettle(d)
  client.say("This change has just appeared. Look at it, then decide.", "warning")
end

-- Returns the number of removed lines that an inline view shows above a line.
local function removed_above(d, line)
  local count = 0
  for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(d.buf, ns, { line - 1, 0 }, { line - 1, -1 }, { details = true })) do
    local details = mark[4]
    count = count + (details.virt_lines_above and #details.virt_lines or 0)
  end
  return count
end

-- Scrolls the removed lines above the first line of a window into view: Neovim does not
-- show virtual lines there by itself. If moved is set, it does so only while the cursor
-- is in that line, so that the user can scroll past them.
local function reveal(d, moved)
  local win = d.inline and valid_buf(d.buf) and vim.fn.bufwinid(d.buf) or -1
  if win == -1 then
    return
  end
  vim.api.nvim_win_call(win, function()
    local view = vim.fn.winsaveview()
    local top = view.topline == view.lnum or view.topline == 1 and not moved
    local count = top and removed_above(d, view.topline) or 0
    if count > view.topfill then
      vim.fn.winrestview({ topfill = count })
    end
  end)
end

-- Highlights the changes in the window of an inline view.
local function draw(d)
  if not valid_buf(d.buf) or not d.inline then
    return
  end
  local tick = vim.api.nvim_buf_get_changedtick(d.buf)
  client.request("diff/hunks", { id = d.diff.id, content = text_of(d) }, function(err, result)
    if err or not valid_buf(d.buf) or vim.api.nvim_buf_get_changedtick(d.buf) ~= tick then
      return
    end
    vim.api.nvim_buf_clear_namespace(d.buf, ns, 0, -1)
    local count = vim.api.nvim_buf_line_count(d.buf)
    local win = vim.fn.bufwinid(d.buf)
    local margin = win ~= -1 and vim.fn.getwininfo(win)[1].textoff or 2
    for _, h in ipairs(result.hunks) do
      for line = h.line, math.min(h.line - 1 + h.lines, count) do
        vim.api.nvim_buf_set_extmark(d.buf, ns, line - 1, 0, {
          end_row = line,
          hl_group = "PolluxAdd",
          hl_eol = true,
          priority = 50,
          sign_text = "+",
          sign_hl_group = "PolluxAdd",
        })
      end
      if #h.removed > 0 then
        local virt = {}
        for _, line in ipairs(h.removed) do
          line = "-" .. (" "):rep(margin - 1) .. line:gsub("\t", "    "):gsub("\r", "")
          table.insert(virt, { { line .. " ", "PolluxDelete" } })
        end
        vim.api.nvim_buf_set_extmark(d.buf, ns, math.min(h.line, count) - 1, 0, {
          virt_lines = virt,
          virt_lines_above = h.line <= count,
          virt_lines_leftcol = true,
        })
      end
    end
    reveal(d)
  end)
end

local function edited(d)
  d.text = text_of(d)
  d.edits = (d.edits or 0) + 1
  local edits = d.edits
  vim.defer_fn(function()
    if d.edits == edits and d.buf and not d.ended and d.diff.state ~= "accepted" then
      client.notify("diff/edit", { id = d.diff.id, content = d.text })
      draw(d)
    end
  end, EDIT_DELAY)
end

local function forget(d)
  d.ended = true
  diffs = vim.tbl_filter(function(other)
    return other ~= d
  end, diffs)
end

-- Removes a view from the screen and restores the windows.
local function hide(d)
  if shown == d then
    shown = nil
  end
  d.text = text_of(d)
  d.settled, d.delays = nil, (d.delays or 0) + 1
  d.hiding = true
  if d.buf and vim.api.nvim_get_current_buf() == d.buf and vim.api.nvim_get_mode().mode:find("^[iR]") then
    -- Keys that are still queued were meant for the proposal.
    vim.cmd("stopinsert")
    while vim.fn.getchar(1) ~= 0 do
      vim.fn.getchar(0)
    end
  end
  if valid_buf(d.buf) then
    vim.bo[d.buf].modified = false
  end
  if d.dirty then
    execute(d.dirty, "diffoff")
  end
  for _, win in ipairs(d.wins or {}) do
    if vim.api.nvim_win_is_valid(win) and not pcall(vim.api.nvim_win_close, win, true) then
      -- The last window cannot be closed: it gets an empty buffer.
      vim.api.nvim_win_set_buf(win, vim.api.nvim_create_buf(true, false))
      caption(win, "", "")
      execute(win, "setlocal winhighlight= signcolumn< | diffoff")
    end
  end
  for _, buf in ipairs({ d.buf or 0, d.left or 0 }) do
    if buf > 0 and vim.api.nvim_buf_is_valid(buf) then
      pcall(vim.api.nvim_buf_delete, buf, { force = true })
    end
  end
  if d.tab and vim.api.nvim_tabpage_is_valid(d.tab) and d.tab == vim.api.nvim_get_current_tabpage() then
    if #vim.api.nvim_tabpage_list_wins(0) == d.count then
      pcall(vim.cmd, d.sizes)
    end
  end
  d.buf, d.left, d.wins, d.dirty, d.hiding = nil, nil, nil, nil, nil
end

local show

-- Removes a view from the screen, even if the user has changed its windows.
local function remove(d)
  local ok, err = keeping_sizes(hide, d)
  if not ok then
    client.note(tostring(err))
  end
end

-- Cleans up after the user has closed a view.
local function tidy(d)
  if d.dismissed then
    d.dismissed = nil
    remove(d)
  end
end

-- Shows a diff and reports whether that worked. If not, the diff stays pending and the user
-- gets a message.
local function try(d)
  tidy(d)
  local ok, failure = keeping_sizes(show, d)
  if not ok then
    keeping_sizes(hide, d)
    failure = tostring(failure):match("E%d+:[^\n]*") or tostring(failure)
    client.say(("%s is pending but cannot be shown (%s): :Pollux next"):format(name(d), failure), "warning")
  end
  return ok
end

-- Reports whether no window can be opened now, because the command-line window is open.
local function busy()
  if vim.fn.getcmdwintype() == "" then
    return false
  end
  vim.api.nvim_create_autocmd("CmdwinLeave", {
    once = true,
    callback = function()
      vim.schedule(M.show_next)
    end,
  })
  return true
end

function M.show_next()
  if not shown and diffs[1] and not busy() then
    try(diffs[1])
  end
end

local function finish(d)
  forget(d)
  if d.deciding then
    return -- accept() calls finish() again; `:wq` needs the window until then
  end
  vim.schedule(function()
    remove(d)
    M.show_next()
    client.event("DiffClosed")
  end)
end

-- Keeps a superseded view until the new proposal for its file arrives: the user may be
-- typing in it.
local function await(d)
  forget(d)
  superseded = d
  vim.defer_fn(function()
    if superseded == d then
      superseded = nil
      finish(d)
    end
  end, SUCCESSOR_TIMEOUT)
end

-- Shows the new proposal in place of the old one, and keeps the cursor in it.
local function replace(old, d)
  superseded = nil
  if vim.api.nvim_get_current_buf() ~= old.buf then
    return finish(old)
  end
  shown = nil
  if try(d) then
    M.go(d)
    d.count, d.sizes = old.count, old.sizes
  end
  finish(old)
end

local function keep_edits(d)
  local text = text_of(d)
  if text and text ~= (d.diff.content or d.diff.proposed) then
    client.notify("diff/edit", { id = d.diff.id, content = text }) -- so that the journal has it
  end
end

local function reject(d)
  if d.ended then
    return
  end
  keep_edits(d)
  finish(d)
  client.request("diff/reject", { id = d.diff.id }, function(err)
    if err then
      return client.note(err)
    end
    local words = { open = "rejected", orphaned = "discarded" }
    client.say((words[d.diff.state] or "kept") .. ": " .. vim.fn.fnamemodify(d.diff.path, ":t"))
  end)
end

-- Handles a view that the user has closed: that rejects, unless it was too early to
-- decide.
local function closed(d, decides)
  if d.ended then
    return
  end
  if decides then
    return reject(d)
  end
  keep_edits(d)
  if shown == d then
    shown = nil
  end
  d.dismissed = true
  vim.schedule(function()
    tidy(d)
  end)
  if d.diff.state ~= "accepted" then
    client.say(name(d) .. " had just appeared, so it is still pending: :Pollux next shows it", "warning")
  end
end

-- Accepts d and reports whether that succeeded.
local function accept(d, overwrite)
  if d.ended then
    return true
  end
  if d.lost then
    client.say("the companion of this change has ended: `:w FILE` saves the text, `pollux journal` has it too", "error")
    return false
  end
  if not can_decide(d) then
    refuse(d)
    return false
  end
  local agent_waits = d.diff.state == "open"
  d.deciding = true
  local result, err = client.call(agent_waits and "diff/accept" or "diff/save", {
    id = d.diff.id,
    content = text_of(d),
    overwrite = overwrite,
  })
  d.deciding = false
  if not result then
    if d.ended then
      finish(d)
    end
    client.say(err, "error")
    return d.ended
  end
  if result.status == "accepted" then
    if valid_buf(d.buf) then
      vim.bo[d.buf].modified = false
    end
    client.say((agent_waits and "accepted: " or "saved: ") .. vim.fn.fnamemodify(d.diff.path, ":t"))
    finish(d)
    return true
  end
  if result.status == "conflict" then
    local answer, asked_at
    repeat -- a key that was meant for the text must not overwrite
      asked_at = vim.loop.hrtime()
      answer = vim.fn.confirm(result.message, "&Overwrite it\n&Compare with it\n&Not now", 3, "Warning")
    until answer ~= 1 or vim.loop.hrtime() - asked_at >= M.settle * 1e6
    if answer == 1 then
      return accept(d, result.version)
    elseif answer == 2 and valid_buf(d.left) then
      vim.bo[d.left].modifiable = true
      fill(d.left, result.disk or "")
      vim.bo[d.left].modifiable = false
      client.say("the left side now shows the file on disk")
    end
    return false
  end
  client.say(result.message or result.status, "error")
  return false
end

-- Reports whether the user wants this write. A command typed in the proposal says so.
-- Otherwise it asks: `:wa` in another window, 'autowrite' and plugins that save
-- automatically write too.
local function asked(d)
  if not vim.api.nvim_win_is_valid(entered) or vim.api.nvim_win_get_buf(entered) ~= d.buf then
    return false
  end
  if typed and typed:find("^[%s:%%]*[wux]%a*") and not typed:find("^[%s:%%]*[wx]q?al?l?[%s!|]*$") then
    return true
  end
  return vim.fn.confirm(("Accept the change to %s?"):format(name(d)), "&Accept\n&Not now", 2) == 1
end

-- Handles BufWriteCmd: `:w` in the proposal.
local function written(d, args)
  local file = vim.fn.expand("<afile>")
  if args.match ~= d.uri and file ~= d.uri then -- a copy
    if vim.fn.filereadable(file) == 1 and vim.v.cmdbang == 0 then
      return client.say(("%s exists: add ! to overwrite it"):format(file), "error")
    end
    vim.fn.writefile(vim.split(text_of(d), "\n", { plain = true }), file, "b")
    if vim.api.nvim_buf_get_name(d.buf) ~= d.uri then
      vim.api.nvim_buf_set_name(d.buf, d.uri) -- after :saveas
    end
    return client.say("saved a copy to " .. file)
  end
  if not d.ended and not can_decide(d) then
    refuse(d)
    vim.bo[d.buf].modified = true
  elseif not asked(d) or not accept(d) then
    vim.bo[d.buf].modified = true
  end
end

-- Handles the loss of the left side: after `:only`, or with another buffer in its
-- window, the proposal stays alone; closing its window rejects.
local function alone(d)
  local decides = can_decide(d)
  d.left = nil
  vim.schedule(function()
    if d.ended or not valid_buf(d.buf) then
      return
    end
    local right = d.wins[2]
    local other = vim.api.nvim_win_is_valid(d.wins[1])
    local only = vim.api.nvim_win_is_valid(right) and #vim.api.nvim_tabpage_list_wins(0) == 1
    if not other and not only then
      return closed(d, decides)
    end
    for _, win in ipairs(d.wins) do
      execute(win, "diffoff")
    end
    d.wins, d.inline = { right }, true
    execute(right, "setlocal winhighlight= signcolumn=yes")
    draw(d)
  end)
end

local function watch(d)
  local group = vim.api.nvim_create_augroup("pollux_diff_" .. d.diff.id, {})
  local function on(events, buf, f)
    vim.api.nvim_create_autocmd(events, { group = group, buffer = buf, callback = f, nested = events == "BufWriteCmd" })
  end
  on("BufWriteCmd", d.buf, function(args)
    written(d, args)
  end)
  on({ "TextChanged", "TextChangedI", "InsertLeave" }, d.buf, function()
    edited(d)
  end)
  on("CursorMoved", d.buf, function()
    reveal(d, true)
  end)
  on("BufUnload", d.buf, function()
    d.text = text_of(d) -- the buffer has a text for the last time
  end)
  for _, buf in ipairs({ d.buf, d.left }) do
    on("BufWipeout", buf, function()
      views[buf] = nil
      if d.hiding then
        return
      end
      if buf == d.left and valid_buf(d.buf) then
        return alone(d)
      end
      local decides = can_decide(d)
      if buf == d.buf then
        d.buf = nil
      end
      closed(d, decides)
    end)
  end
end

-- On the left side, the keys for hunks are those of diff mode.
local function set_keys(buf, left)
  if not config.get().keys then
    return
  end
  for _, k in ipairs(left and { M.keys[#M.keys] } or M.keys) do
    vim.keymap.set("n", k[1], "<Cmd>Pollux " .. k[2] .. "<CR>", { buffer = buf, nowait = true })
  end
end

-- Returns the buffer of the file, if it has unsaved changes.
local function dirty_buffer(path)
  return vim.tbl_filter(function(buf)
    return vim.bo[buf].modified
  end, context.buffers(path))[1]
end

show = function(d)
  local was = entered
  local base = beside(d.diff.path)
  d.base = base
  d.tab, d.count, d.sizes = vim.api.nvim_get_current_tabpage(), #vim.api.nvim_tabpage_list_wins(0), vim.fn.winrestcmd()
  local text = d.text or d.diff.content or d.diff.proposed
  d.buf, d.form, d.uri = scratch(d, "proposed", "acwrite", text)
  d.text = text
  local width = base and vim.api.nvim_win_get_width(base) or vim.api.nvim_win_get_width(0)
  local layout = config.get().layout
  d.inline = layout == "inline" or layout == "auto" and width < MIN_COLUMNS
  local height = base and vim.api.nvim_win_get_height(base)
  local first
  if d.inline then
    first = split(base or 0, "aboveleft", d.buf)
    d.wins = { first }
  else
    d.left = scratch(d, "original", "nofile", d.diff.original)
    vim.bo[d.left].modifiable = false
    first = split(base or 0, "aboveleft", d.left)
    d.wins = { first }
    table.insert(d.wins, split(first, "rightbelow vertical", d.buf))
  end
  local dirty = dirty_buffer(d.diff.path)
  if dirty then
    d.dirty = split(d.wins[#d.wins], "rightbelow vertical", dirty)
    table.insert(d.wins, d.dirty)
  end
  if base and height > 12 then
    vim.api.nvim_win_set_height(first, height - math.max(4, math.floor(height / 4)) - 1)
  end
  if d.inline then
    execute(first, "setlocal signcolumn=yes") -- for the plus signs
  else
    for _, win in ipairs(d.wins) do
      execute(win, "diffthis")
    end
    execute(first, "setlocal winhighlight=" .. colors.left)
    execute(d.wins[2], "setlocal winhighlight=" .. colors.right)
  end
  vim.bo[d.buf].modified = true
  vim.bo[d.buf].modifiable = not d.diff.readOnly
  entered = was
  shown = d
  watch(d)
  set_keys(d.buf)
  caption_of(d)
  unsettle(d)
  if d.left then
    set_keys(d.left, true)
    local what = d.diff.state == "outside" and "before: " or d.diff.exists and "on disk: "
    caption(d.wins[1], what or "new file", what and name(d) or "")
  end
  if d.dirty then
    caption(d.dirty, "your unsaved changes (they are kept)", "")
  end
  remark(d)
  if d.inline then
    draw(d)
  end
  client.request("diff/hunks", { id = d.diff.id, content = text }, function(e, result)
    local h = not e and result.hunks[1]
    local right = window(d)
    if h and right then
      local last = vim.api.nvim_buf_line_count(d.buf)
      vim.api.nvim_win_set_cursor(right, { math.max(1, math.min(h.line, last)), 0 })
      execute(right, "normal! zz")
      reveal(d)
    end
  end)
  if vim.fn.has("nvim-0.8") == 0 then
    vim.cmd("redraw")
  end
end

--- Handles diff/open: shows a diff, or keeps it pending.
function M.open(diff)
  local old = find(diff.id)
  if old then
    if diff.state == "outside" then
      M.go(old)
    end
    return {}
  end
  local d = { diff = diff, text = diff.content or diff.proposed }
  table.insert(diffs, d)
  if superseded and superseded.diff.path == diff.path then
    replace(superseded, d)
  elseif diff.state == "outside" then -- the user has chosen it
    M.go(d)
  elseif not shown and not busy() then
    try(d)
  end
  client.event("DiffOpened")
  return {}
end

--- Handles diff/close: the diff has been decided. Returns the text as the user left it.
function M.close(id, reason)
  local d = find(id)
  if not d then
    return nil
  end
  local text = text_of(d)
  client.note(("%s: %s"):format(name(d), reason == "unwritten" and "accepted, but not written" or reason))
  if valid_buf(d.buf) then
    vim.bo[d.buf].modified = false
  end
  if reason == "superseded" and d.buf then
    await(d)
  else
    finish(d)
  end
  return text
end

--- Handles diff/changed: another client edited the text, or the state changed.
function M.changed(p)
  local d = find(p.id)
  if not d then
    return
  end
  if p.state then
    d.diff.state = p.state
    caption_of(d)
  end
  if p.content and p.content ~= text_of(d) then
    d.text = p.content
    if valid_buf(d.buf) then
      d.form = fill(d.buf, p.content)
      vim.bo[d.buf].modified = true
      unsettle(d)
      draw(d)
    end
  end
end

--- Handles the end of the companion: the shown diff stays, and its text can be saved.
function M.lost()
  for _, d in ipairs(diffs) do
    if d.buf then
      d.lost = true
      caption_of(d)
      client.say(("%s: the companion has ended; your text is kept here"):format(name(d)), "warning")
    end
    d.ended = not d.buf
  end
  diffs, shown = {}, nil
end

--- Handles file/changed: another program has written a file.
function M.reload(path)
  for _, buf in ipairs(context.buffers(path)) do
    if vim.bo[buf].modified then
      client.say(
        vim.fn.fnamemodify(path, ":~:.") .. " was written; your unsaved changes are kept (:e! reads the file)",
        "warning"
      )
    elseif vim.fn.filereadable(vim.api.nvim_buf_get_name(buf)) == 1 then
      vim.bo[buf].autoread = true
      vim.cmd("silent! checktime " .. buf)
      vim.api.nvim_buf_call(buf, function()
        vim.cmd("setlocal autoread<")
      end)
    end
  end
  context.soon()
end

-- Returns the diff that a command decides on. One that is not in view is shown instead.
local function to_decide()
  local d = M.current()
  if not d then
    return client.say("no pending changes")
  end
  if not in_view(d) then
    M.go(d)
    return client.say("Look at it first, then decide.", "warning")
  end
  return d
end

function M.accept()
  local d = to_decide()
  if d then
    accept(d)
  end
end

function M.reject()
  local d = to_decide()
  if d and can_decide(d) then
    reject(d)
  elseif d then
    refuse(d)
  end
end

--- Goes to the diff on the screen; from there, to the next pending one.
function M.next()
  local d = M.current()
  if not d then
    return client.say("no pending changes")
  end
  local at = 0
  for i, other in ipairs(diffs) do
    at = other == d and i or at
  end
  M.go(inside() and diffs[at % #diffs + 1] or d)
end

--- Shows a diff in place of the one on the screen, and goes to it.
function M.go(d)
  tidy(d)
  if not d.buf then
    local other = shown
    if other then
      client.notify("diff/edit", { id = other.diff.id, content = text_of(other) })
      keeping_sizes(hide, other)
    end
    if not try(d) then
      vim.cmd("tab split") -- which has room
      if not try(d) then
        return
      end
    end
  end
  local win = window(d)
  if win then
    vim.api.nvim_set_current_win(win)
  end
end

-- Returns the current diff and its window.
local function on_screen()
  local d = M.current()
  local win = d and window(d)
  if not win then
    client.say("no change on the screen")
  end
  return d, win
end

--- Goes to the next or the previous hunk.
function M.hunk(backwards)
  local d, win = on_screen()
  if not win then
    return
  end
  local result, err = client.call("diff/hunks", { id = d.diff.id, content = text_of(d) })
  if not result then
    return client.say(err, "error")
  end
  local line = vim.api.nvim_win_get_cursor(win)[1]
  local last = vim.api.nvim_buf_line_count(d.buf)
  local to
  for _, h in ipairs(result.hunks) do
    local at = math.max(1, math.min(h.line, last))
    if backwards and at < line then
      to = at
    elseif not backwards and at > line and not to then
      to = at
    end
  end
  if not to then
    return client.say(backwards and "no hunk before this line" or "no hunk after this line")
  end
  vim.api.nvim_win_set_cursor(win, { to, 0 })
  reveal(d)
end

--- Restores the hunk at the cursor from the text on disk ("original") or from the
--- proposal ("proposed").
function M.take(what)
  local d, win = on_screen()
  if not win then
    return
  end
  local line = vim.api.nvim_win_get_cursor(win)[1]
  local edit, err = client.call("diff/hunk", { id = d.diff.id, content = text_of(d), line = line, take = what })
  if not edit then
    return client.say(err)
  end
  local new = edit.text == "" and {} or (lines_of(edit.text))
  local from, to = edit.line - 1, edit.line - 1 + edit.lines
  local last = vim.api.nvim_buf_line_count(d.buf)
  if text_of(d) == "" then
    from, to = 0, 1 -- replace the only line of an empty buffer
  end
  vim.api.nvim_buf_set_lines(d.buf, from, math.min(to, last), false, new)
  vim.bo[d.buf].endofline = edit.eol
  vim.bo[d.buf].modified = true
  edited(d)
  if not d.inline then
    execute(win, "diffupdate")
  end
end

colors.start()
local group = vim.api.nvim_create_augroup("pollux_windows", {})
vim.api.nvim_create_autocmd("WinEnter", {
  group = group,
  callback = function()
    entered = vim.api.nvim_get_current_win()
  end,
})
vim.api.nvim_create_autocmd("TabEnter", {
  group = group,
  callback = function()
    if shown and in_view(shown) then
      unsettle(shown)
    end
  end,
})
vim.api.nvim_create_autocmd("CmdlineEnter", {
  group = group,
  pattern = ":",
  callback = function()
    begun = vim.loop.hrtime()
  end,
})
vim.on_key(function()
  local d = inside()
  if d and d.delays and not d.settled and not d.hiding then
    unsettle(d)
  end
end, ns)
vim.api.nvim_create_autocmd("CmdlineLeave", {
  group = group,
  pattern = ":",
  callback = function()
    typed = vim.fn.getcmdline()
    vim.schedule(function()
      typed = nil
    end)
  end,
})

return M
