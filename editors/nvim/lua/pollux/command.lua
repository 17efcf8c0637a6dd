-- The command :Pollux.
local client = require("pollux.client")
local diff = require("pollux.diff")

local M = {}

-- Returns Pollux's parameters for a command's range or the whole file, and the buffer.
local function target(opts)
  local buf = vim.api.nvim_get_current_buf()
  local path = vim.api.nvim_buf_get_name(buf)
  local params = { path = vim.bo[buf].buftype == "" and path ~= "" and vim.fn.fnamemodify(path, ":p") or nil }
  if params.path and opts.range > 0 then
    params.line, params.endLine = opts.line1, opts.line2
  end
  return params, buf
end

local function send(opts, params, rest)
  params.question = rest
  if params.path and vim.bo.modified then
    client.say("the agent reads the file as last saved", "warning")
  end
  require("pollux.terminal").send(params)
end

local function show_status()
  local s, err = client.call("status", { commands = ":Pollux " })
  if not s then
    return client.say(err, "error")
  end
  -- A Pollux of another version may send no text.
  local text = s.text or ("Pollux %s, port %d"):format(s.version, s.port)
  vim.api.nvim_echo({ { vim.trim(text) } }, false, {})
end

local function show_log()
  vim.cmd("botright new")
  local buf = vim.api.nvim_get_current_buf()
  vim.bo[buf].buftype, vim.bo[buf].bufhidden, vim.bo[buf].swapfile = "nofile", "wipe", false
  vim.api.nvim_buf_set_lines(buf, 0, -1, false, vim.split(table.concat(client.log, "\n"), "\n"))
  vim.bo[buf].modifiable = false
  vim.cmd("normal! G")
end

local function list()
  local choices = vim.list_extend(diff.waiting(), client.outside)
  if #choices == 0 then
    return client.say("no pending changes")
  end
  vim.ui.select(choices, {
    prompt = "Review:",
    format_item = function(d)
      if not d.diff then
        return ("%s  %s outside Pollux"):format(vim.fn.fnamemodify(d.path, ":~:."), d.change)
      end
      return ("%s  %s%s"):format(
        diff.name(d),
        diff.agent(d),
        d.diff.state == "orphaned" and "  (agent has ended)" or ""
      )
    end,
  }, function(d)
    if d and not d.diff then
      local _, err = client.call("outside/open", { path = d.path })
      if err then
        client.say(err, "error")
      end
    elseif d and not d.ended then
      diff.go(d)
    end
  end)
end

local commands = {
  open = function()
    require("pollux.terminal").open()
  end,
  toggle = function()
    require("pollux.terminal").toggle()
  end,
  send = function(opts, rest)
    local params = target(opts)
    local agent, question = rest:match("^%-%-agent%s+(%S+)%s*(.*)$")
    if agent then
      params.agent, rest = agent, question
    end
    if not params.path and rest == "" then
      return client.say("this buffer is not a file: add a question, :Pollux send QUESTION", "error")
    end
    send(opts, params, rest)
  end,
  ask = function(opts, rest)
    local ask = require("pollux.ask")
    local agent, question = rest:match("^(%S+)%s+(.+)$")
    if not vim.tbl_contains(ask.agents, agent) then
      agent, question = nil, rest
    end
    ask.ask(opts, agent, question)
  end,
  diagnostics = function(opts, rest)
    local params, buf = target(opts)
    if not params.path then
      return client.say("this buffer is not a file", "error")
    end
    params.problems = {}
    for _, d in ipairs(require("pollux.diagnostics").of(buf)) do
      local line = d.range.start.line
      if not params.line or line >= params.line and line <= params.endLine then
        local severity = d.severity == "information" and "info" or d.severity
        table.insert(params.problems, { line = line, severity = severity, message = d.message, source = d.source })
      end
    end
    if #params.problems == 0 then
      return client.say("no diagnostics here")
    end
    table.sort(params.problems, function(a, b)
      return a.line < b.line
    end)
    send(opts, params, rest ~= "" and rest or "Fix these.")
  end,
  accept = diff.accept,
  reject = diff.reject,
  next = diff.next,
  ["next-hunk"] = function()
    diff.hunk(false)
  end,
  ["previous-hunk"] = function()
    diff.hunk(true)
  end,
  ["redo-hunk"] = function()
    diff.take("proposed")
  end,
  ["undo-hunk"] = function()
    diff.take("original")
  end,
  list = list,
  status = show_status,
  log = show_log,
  start = client.start,
  stop = client.stop,
}

-- Returns the commands of the agents that the user can name, those that are installed
-- first.
local function agents()
  local installed, others = {}, {}
  for _, agent in ipairs(client.info and client.info.agents or {}) do
    table.insert(vim.fn.executable(agent.command) == 1 and installed or others, agent.command)
  end
  return vim.list_extend(installed, others)
end

function M.complete(lead, line)
  local all = {}
  if line:match("Pollux%s+ask%s+%S*$") then
    all = require("pollux.ask").agents
  elseif line:match("Pollux%s+send%s+%-%-agent%s+%S*$") then
    all = agents()
  elseif line:match("^%S*%s+%S*$") then
    all = vim.tbl_keys(commands)
    table.sort(all)
    vim.list_extend(all, agents())
  end
  return vim.tbl_filter(function(name)
    return name:sub(1, #lead) == lead
  end, all)
end

function M.run(opts)
  local name, rest = opts.args:match("^(%S*)%s*(.-)$")
  if name == "" then
    name = "status"
  elseif name == "accept-hunk" then -- its older name
    name = "redo-hunk"
  end
  local command = commands[name]
  if not command and vim.tbl_contains(agents(), name) then
    return require("pollux.terminal").open(name, vim.list_slice(opts.fargs, 2))
  end
  if not command and not client.ready() then
    return client.say("Pollux is not running: run :Pollux start; if that fails, see :Pollux log", "error")
  end
  if not command then
    return client.say(("unknown command %q: press Tab after :Pollux for a list"):format(name), "error")
  end
  command(opts, rest)
end

return M
