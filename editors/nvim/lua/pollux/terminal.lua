-- The agent in a terminal of Neovim.
local client = require("pollux.client")
local config = require("pollux.config")

local M = {}

local buf, job
local ENTER_DELAY = 150 -- ms after a paste; an earlier Enter would become part of it
local POLL_INTERVAL = 100 -- ms between two checks of the terminal's screen
local MAX_POLLS = 100 -- checks before a question counts as not accepted

local function window()
  if buf and vim.api.nvim_buf_is_valid(buf) then
    for _, win in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
      if vim.api.nvim_win_get_buf(win) == buf then
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

local function command()
  local opts = config.get()
  local argv = { opts.command, "run", "--attach" }
  if opts.cli then
    table.insert(argv, "--")
    vim.list_extend(argv, type(opts.cli) == "table" and opts.cli or { opts.cli })
  end
  return argv
end

--- Shows the agent's terminal. Starts the agent if it is not running.
function M.open(enter)
  local win = window()
  if win and job then
    if enter ~= false then
      vim.api.nvim_set_current_win(win)
      vim.cmd("startinsert")
    end
    return true
  end
  local back = vim.api.nvim_get_current_win()
  if job then
    split()
    vim.api.nvim_win_set_buf(0, buf)
  else
    if not client.ready() then
      client.say("Pollux is not running: run :Pollux start; if that fails, see :Pollux log", "error")
      return false
    end
    local old = buf
    if win then
      vim.api.nvim_set_current_win(win)
    else
      split()
    end
    buf = vim.api.nvim_create_buf(false, true)
    vim.api.nvim_win_set_buf(0, buf)
    if old and vim.api.nvim_buf_is_valid(old) then
      pcall(vim.api.nvim_buf_delete, old, { force = true }) -- of an agent that has ended
    end
    local opts = {
      cwd = require("pollux.context").roots()[1],
      on_exit = function(_, code)
        job = nil
        if code == 0 and buf and vim.api.nvim_buf_is_valid(buf) then
          pcall(vim.api.nvim_buf_delete, buf, { force = true })
        end
      end,
    }
    if vim.fn.has("nvim-0.11") == 1 then
      opts.term = true
      job = vim.fn.jobstart(command(), opts)
    else
      job = vim.fn.termopen(command(), opts)
    end
    vim.bo[buf].bufhidden = "hide"
    pcall(vim.api.nvim_buf_set_name, buf, "pollux://agent")
  end
  if enter == false then
    vim.api.nvim_set_current_win(back)
  else
    vim.cmd("startinsert")
  end
  return true
end

function M.toggle()
  local win = window()
  if not win then
    return M.open()
  end
  if not pcall(vim.api.nvim_win_close, win, false) then
    client.say("cannot hide the terminal: it is in the only window")
  end
end

-- Reports whether the agent's input line is empty and ready.
local function waits(prompt)
  if not buf or not vim.api.nvim_buf_is_valid(buf) then
    return false
  end
  for _, line in ipairs(vim.api.nvim_buf_get_lines(buf, -1 - vim.o.lines, -1, false)) do
    if line:find(prompt.ready, 1, true) then
      return true
    end
  end
  return false
end

-- Presses Enter once the paste is visible: while the agent starts, it reads its input
-- late.
local function enter(prompt, polls)
  if not job then
    return
  elseif not waits(prompt) then
    vim.defer_fn(function()
      if waits(prompt) then
        enter(prompt, polls)
      elseif job then
        vim.fn.chansend(job, "\r")
      end
    end, ENTER_DELAY)
  elseif polls > 0 then
    vim.defer_fn(function()
      enter(prompt, polls - 1)
    end, POLL_INTERVAL)
  else
    client.say("the agent did not accept your question: " .. prompt.text, "warning")
  end
end

local function type_in(prompt)
  vim.fn.chansend(job, prompt.paste)
  if prompt.submit then
    enter(prompt, MAX_POLLS)
  end
end

--- Types a question into the agent's terminal. Starts the agent if it is not running.
function M.send(params)
  local prompt, err = client.call("prompt", params)
  if not prompt then
    return client.say(err, "error")
  end
  local running = job ~= nil
  if not M.open() then
    return
  end
  if running then
    return type_in(prompt)
  end
  local function wait()
    if not job then
      return client.say("the agent has ended; your question was: " .. prompt.text, "warning")
    end
    if waits(prompt) then
      return type_in(prompt)
    end
    vim.defer_fn(wait, POLL_INTERVAL)
  end
  wait()
end

return M
