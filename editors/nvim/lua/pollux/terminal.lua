-- Gemini CLI in a terminal of Neovim's.
local client = require("pollux.client")
local config = require("pollux.config")

local M = {}

local buf, job
local ENTER = 150 -- ms after a paste; the CLI takes an earlier Enter for a part of it
local LOOK = 100 -- ms between two looks at the CLI's screen
local LOOKS = 100 -- until a question counts as not taken

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

--- Shows the CLI's terminal, and starts it if there is none.
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
      client.say("Pollux is not running: :Pollux start, and :Pollux log if that fails", "error")
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
      pcall(vim.api.nvim_buf_delete, old, { force = true }) -- of a CLI that has ended
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
    pcall(vim.api.nvim_buf_set_name, buf, "pollux://gemini")
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
    client.say("the terminal is in the only window")
  end
end

-- Whether the CLI's input line waits for a first character.
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

-- The CLI reads late what it is sent while it starts, so the Enter waits until
-- the paste is to be seen.
local function enter(prompt, looks)
  if not job then
    return
  elseif not waits(prompt) then
    vim.defer_fn(function()
      if waits(prompt) then
        enter(prompt, looks)
      elseif job then
        vim.fn.chansend(job, "\r")
      end
    end, ENTER)
  elseif looks > 0 then
    vim.defer_fn(function()
      enter(prompt, looks - 1)
    end, LOOK)
  else
    client.say("the CLI has not taken your question: " .. prompt.text, "warning")
  end
end

local function type_in(prompt)
  vim.fn.chansend(job, prompt.paste)
  if prompt.submit then
    enter(prompt, LOOKS)
  end
end

--- Types a question into the CLI, and starts it if there is none.
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
      return client.say("the CLI has ended; your question was: " .. prompt.text, "warning")
    end
    if waits(prompt) then
      return type_in(prompt)
    end
    vim.defer_fn(wait, LOOK)
  end
  wait()
end

return M
