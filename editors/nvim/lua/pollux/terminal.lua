-- The agents in terminals of Neovim: each has a terminal of its own.
local client = require("pollux.client")
local config = require("pollux.config")

local M = {
  -- Checks before an agent that was started counts as not ready, for about a minute: the user
  -- may have to sign in first, or to trust the folder. Tests set it.
  max_waits = 600,
}

-- The terminals, the last used one first. Each has the name of its agent ("" for the
-- one that `pollux run` chooses), buf, and job while the agent runs.
local terminals = {}
local ENTER_DELAY = 300 -- ms after a paste; an earlier Enter would become part of it
local POLL_INTERVAL = 100 -- ms between two checks of the terminal's screen
local MAX_POLLS = 50 -- checks before a question counts as not accepted
local SEEN = 10 -- bytes of a prompt that the agent must show

-- Returns the command that starts an agent without a name, as a list, or nil.
local function chosen()
  local cli = config.get().cli
  return type(cli) == "string" and { cli } or cli
end

local function default_name()
  local cli = chosen()
  return cli and vim.fn.fnamemodify(cli[1], ":t") or ""
end

-- Returns the terminal of an agent; without a name, the last used one, preferably of an
-- agent that runs.
local function find(name)
  for _, t in ipairs(terminals) do
    if t.name == name or not name and t.job then
      return t
    end
  end
  return not name and terminals[1] or nil
end

-- Makes a terminal the last used one.
local function used(t)
  for i, other in ipairs(terminals) do
    if other == t then
      table.remove(terminals, i)
      break
    end
  end
  table.insert(terminals, 1, t)
end

local function valid(t)
  return t.buf and vim.api.nvim_buf_is_valid(t.buf)
end

local function window(t)
  if valid(t) then
    for _, win in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
      if vim.api.nvim_win_get_buf(win) == t.buf then
        return win
      end
    end
  end
end

local function split()
  local t = config.get().terminal
  vim.cmd(t.position .. " split")
  local vertical = t.position:find("vert")
  local size = t.size
  if size < 1 then
    size = math.floor((vertical and vim.o.columns or vim.o.lines) * size)
  end
  if vertical then
    vim.cmd("vertical resize " .. size)
  else
    vim.cmd("resize " .. size)
  end
end

local function command(name, args)
  local argv = { config.program(), "run", "--attach" }
  local own = name ~= "" and { name } or {}
  local cli = (name == "" or name == default_name()) and chosen() or own
  if #cli > 0 then
    table.insert(argv, "--")
    vim.list_extend(argv, cli)
    vim.list_extend(argv, args or {})
  end
  return argv
end

-- Starts the agent of a terminal in the current window.
local function start(t, args)
  local old = t.buf
  t.buf = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_win_set_buf(0, t.buf)
  if old and vim.api.nvim_buf_is_valid(old) then
    pcall(vim.api.nvim_buf_delete, old, { force = true }) -- of an agent that has ended
  end
  local buf = t.buf
  local opts = {
    cwd = require("pollux.context").roots()[1],
    on_exit = function(_, code)
      t.job = nil
      if code == 0 and vim.api.nvim_buf_is_valid(buf) then
        pcall(vim.api.nvim_buf_delete, buf, { force = true })
      end
    end,
  }
  if vim.fn.has("nvim-0.11") == 1 then
    opts.term = true
    t.job = vim.fn.jobstart(command(t.name, args), opts)
  else
    t.job = vim.fn.termopen(command(t.name, args), opts)
  end
  vim.bo[buf].bufhidden = "hide"
  pcall(vim.api.nvim_buf_set_name, buf, "pollux://agent" .. (t.name ~= "" and "/" .. t.name or ""))
end

--- Shows the terminal of an agent, and starts the agent if it is not running. Without a
--- name, it is the last used one. Returns the terminal.
function M.open(name, args)
  local t = find(name)
  if t and t.job and args and #args > 0 then
    client.say(t.name .. " is running: its arguments count when it starts", "warning")
  end
  if not (t and t.job) and not client.ready() then
    return client.say("Pollux is not running: run :Pollux start; if that fails, see :Pollux log", "error")
  end
  t = t or { name = name or default_name() }
  local win = window(t)
  if win then
    vim.api.nvim_set_current_win(win)
  else
    split()
  end
  if not t.job then
    start(t, args)
  elseif not win then
    vim.api.nvim_win_set_buf(0, t.buf)
  end
  used(t)
  vim.cmd("startinsert")
  return t
end

function M.toggle()
  local t = find()
  local win = t and window(t)
  if not win then
    return M.open()
  end
  if not pcall(vim.api.nvim_win_close, win, false) then
    client.say("cannot hide the terminal: it is in the only window")
  end
end

-- Returns what the terminal shows.
local function screen(t)
  return valid(t) and table.concat(vim.api.nvim_buf_get_lines(t.buf, -1 - vim.o.lines, -1, false), "\n") or ""
end

-- Reports whether the agent shows what it shows when its input line is empty and ready.
local function waits(t, prompt)
  return screen(t):find(prompt.ready, 1, true) ~= nil
end

-- Returns how often the terminal shows the beginning or the end of a prompt, or what agents show
-- in place of a long paste. Spaces do not count: agents wrap lines.
local function seen(t, prompt)
  local shown, text = screen(t):gsub("%s", ""), prompt.text:gsub("%s", "")
  local count = 0
  for _, part in ipairs({ text:sub(1, SEEN), text:sub(-SEEN), "[Past" }) do
    count = count + select(2, shown:gsub(vim.pesc(part), ""))
  end
  return count
end

-- Presses Enter once the agent shows the pasted prompt: it reads its input late while it
-- starts, and a question that it asks would take Enter for the answer. before is what seen
-- returned before the paste.
local function enter(t, prompt, before, polls)
  if not t.job then
    return
  elseif seen(t, prompt) > before then
    vim.defer_fn(function()
      if t.job and seen(t, prompt) > before then
        vim.fn.chansend(t.job, "\r")
      else
        enter(t, prompt, before, 0)
      end
    end, ENTER_DELAY)
  elseif polls > 0 then
    vim.defer_fn(function()
      enter(t, prompt, before, polls - 1)
    end, POLL_INTERVAL)
  else
    client.say(
      "the agent does not show your question. Look at its terminal before you press Enter: " .. prompt.text,
      "warning"
    )
  end
end

local function type_in(t, prompt)
  local before = seen(t, prompt)
  vim.fn.chansend(t.job, prompt.paste)
  if prompt.submit then
    enter(t, prompt, before, MAX_POLLS)
  end
end

-- Types a prompt when the agent, which has just been started, is ready.
local function type_when_ready(t, prompt, checks)
  if not t.job then
    return client.say("the agent has ended; your question was: " .. prompt.text, "warning")
  end
  if waits(t, prompt) then
    return type_in(t, prompt)
  end
  if checks == 0 then
    return client.say(
      "the agent is still not ready: send your question again when it is. It was not sent: " .. prompt.text,
      "warning"
    )
  end
  vim.defer_fn(function()
    type_when_ready(t, prompt, checks - 1)
  end, POLL_INTERVAL)
end

-- Returns the terminals in which agents run, as Pollux wants to know them.
local function running()
  local list = {}
  for _, t in ipairs(terminals) do
    if t.job then
      table.insert(list, { pid = vim.fn.jobpid(t.job), agent = t.name ~= "" and t.name or nil })
    end
  end
  return #list > 0 and list or nil
end

--- Sends a file, lines or a question to an agent. Starts one if none is running.
function M.send(params)
  local last = find()
  params.terminals, params.start = running(), last and last.name or default_name()
  local result, err = client.call("send", params)
  if not result then
    return client.say(err, "error")
  end
  if result.status == "terminal" then
    for _, t in ipairs(terminals) do
      if t.job and vim.fn.jobpid(t.job) == result.pid then
        M.open(t.name)
        return type_in(t, result.prompt)
      end
    end
    client.say("the agent has ended; your question was: " .. result.prompt.text, "warning")
  elseif result.status == "start" then
    local t = M.open(result.agent ~= "" and result.agent or nil)
    if t then
      type_when_ready(t, result.prompt, M.max_waits)
    end
  else
    client.say("sent to " .. result.agent .. (result.pane and " in tmux pane " .. result.pane or ""))
  end
end

return M
