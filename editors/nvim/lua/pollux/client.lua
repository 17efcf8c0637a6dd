-- Runs `pollux ide` and speaks JSON-RPC with it, one message per line (see
-- docs/PROTOCOL.md in Pollux's repository).
local config = require("pollux.config")

local M = {
  agents = {}, -- the connected agents
  outside = {}, -- the files that changed outside Pollux
  info = nil, -- the result of initialize, while the companion is running
  log = {}, -- messages, for :Pollux log
  waiting = 0, -- calls that wait for their answer
}

local VERSION = "1.0"
local PROTOCOL = 1

local job -- the channel of the running process
local stopping = false
local started -- when the process was started, from vim.loop.now()
local failures = 0
local previous -- port and token of a companion that crashed
local next_id = 0
local pending = {} -- callbacks by id of the request
local stderr = {}
local MAX_FAILURES = 5 -- failed starts in a row
local STOP_TIMEOUT = 5000 -- ms until Pollux is killed
local EXIT_TIMEOUT = 3000 -- ms until Pollux is killed when Neovim exits; Pollux needs up to 2000

function M.note(text)
  table.insert(M.log, os.date("%H:%M:%S ") .. text)
  if #M.log > 500 then
    table.remove(M.log, 1)
  end
end

-- Shortens a text in the middle so that it fits the command line. After a longer
-- message Neovim asks for Enter, and the next key would be lost. `:Pollux log` shows
-- the whole text.
local function fitting(text)
  local builtin = type(vim.notify) == "function" and debug.getinfo(vim.notify, "S").source:find("editor.lua", 1, true)
  if not builtin or vim.fn.strdisplaywidth(text) <= vim.v.echospace then
    return text -- a plugin has replaced vim.notify and shows all of it
  end
  local head = vim.fn.strcharpart(text, 0, math.floor(vim.v.echospace / 3)) .. "…"
  local tail = text
  while vim.fn.strdisplaywidth(head .. tail) > vim.v.echospace do
    tail = vim.fn.strcharpart(tail, 1)
  end
  return head .. tail
end

--- Shows the user a message. level is "info", "warning" or "error".
function M.say(text, level)
  M.note(text)
  local levels = vim.log.levels
  local l = ({ warning = levels.WARN, error = levels.ERROR })[level] or levels.INFO
  vim.schedule(function()
    if vim.v.exiting ~= vim.NIL then
      return -- a message could ask for a key, and Neovim would wait for it
    end
    vim.cmd("redraw") -- otherwise Neovim asks for Enter after a second message
    vim.notify(fitting("pollux: " .. text), l)
  end)
end

function M.event(name)
  pcall(vim.api.nvim_exec_autocmds, "User", { pattern = "Pollux" .. name, modeline = false })
  pcall(vim.cmd, "redrawstatus!")
end

local function write(message)
  message.jsonrpc = "2.0"
  if job then
    pcall(vim.fn.chansend, job, vim.json.encode(message) .. "\n")
  end
end

function M.ready()
  return M.info ~= nil
end

function M.notify(method, params)
  if M.info then
    write({ method = method, params = params })
  end
end

--- Calls done(error, result) with the answer; the error is a text.
function M.request(method, params, done)
  if not job or (not M.info and method ~= "initialize") then
    done("Pollux is not running: run :Pollux start; if that fails, see :Pollux log")
    return
  end
  next_id = next_id + 1
  pending[next_id] = done
  write({ id = next_id, method = method, params = params })
  return next_id
end

--- Waits for the answer: returns the result, or nil and the error.
function M.call(method, params)
  local done, err, result = false, nil, nil
  local id = M.request(method, params, function(e, r)
    done, err, result = true, e, r
  end)
  M.waiting = M.waiting + 1
  local answered = done or vim.wait(5000, function()
    return done
  end, 5)
  M.waiting = M.waiting - 1
  if not answered then
    pending[id] = nil
    err = "Pollux did not answer: try again"
  end
  if err then
    return nil, err
  end
  return result or {}
end

local function set_env(env)
  for name, value in pairs(env or {}) do
    vim.env[name] = value
  end
end

-- The methods that Pollux calls. A second return value is an error.
local handlers = {
  ["diff/open"] = function(p)
    return require("pollux.diff").open(p)
  end,
  ["diff/close"] = function(p)
    return { content = require("pollux.diff").close(p.id, p.reason) }
  end,
  ["diff/changed"] = function(p)
    require("pollux.diff").changed(p)
  end,
  ["file/changed"] = function(p)
    require("pollux.diff").reload(p.path)
  end,
  diagnostics = function(p)
    return require("pollux.diagnostics").report(p.path)
  end,
  clients = function(p)
    local before = #M.agents
    M.agents = p.clients or {}
    if #M.agents ~= before then
      M.event(#M.agents > before and "Connected" or "Disconnected")
    end
  end,
  outside = function(p)
    M.outside = p.files
  end,
  env = function(p)
    set_env(p.env)
  end,
  message = function(p)
    M.say(p.text, p.level)
  end,
}

local function received(message)
  if message.method then
    local handler = handlers[message.method]
    if not handler then
      if message.id then
        write({ id = message.id, error = { code = -32601, message = "unknown method " .. message.method } })
      end
      return
    end
    local ok, result, failure = pcall(handler, message.params or {})
    if not ok then
      failure = tostring(result)
      M.note(message.method .. ": " .. failure)
    end
    if message.id then
      if failure then
        write({ id = message.id, error = { code = -32000, message = failure } })
      else
        write({ id = message.id, result = result and next(result) and result or vim.empty_dict() })
      end
    end
    return
  end
  local done = pending[message.id]
  pending[message.id or 0] = nil
  if done then
    done(message.error and (message.error.message or "unknown error"), message.result)
  end
end

-- on_stdout receives lines; the last one may continue in the next call.
local function reader()
  local part = {}
  return function(_, data)
    for i, piece in ipairs(data) do
      table.insert(part, piece)
      if i < #data then
        local line = table.concat(part)
        part = {}
        if line ~= "" then
          local ok, message = pcall(vim.json.decode, line, { luanil = { object = true, array = true } })
          if ok and type(message) == "table" then
            received(message)
          else
            M.note("cannot parse a message of " .. #line .. " bytes")
          end
        end
      end
    end
  end
end

local function initialize()
  local opts = config.get()
  local v = vim.version()
  local roots = require("pollux.context").roots()
  M.request("initialize", {
    protocol = PROTOCOL,
    client = { name = "pollux.nvim", version = VERSION },
    editor = { name = "neovim", displayName = "Neovim" },
    pid = vim.fn.getpid(),
    roots = roots,
    diff = true,
    diagnostics = true,
    settings = {
      includeIgnored = opts.include_ignored,
      reviewPage = opts.review_page,
      port = previous and previous.port,
      token = previous and previous.token,
    },
  }, function(err, result)
    if err then
      stopping = true
      M.say(err, "error")
      M.stop()
      return
    end
    if result.protocol ~= PROTOCOL then
      M.say(("this plugin and `%s` are not compatible: update both"):format(opts.command), "error")
      M.stop()
      return
    end
    M.info = result
    previous = { port = result.port, token = result.token }
    set_env(result.env)
    M.note(("started: Neovim %d.%d, pollux %s, port %d"):format(v.major, v.minor, result.server.version, result.port))
    require("pollux.context").start(roots)
    require("pollux.diagnostics").start()
    M.event("Started")
  end)
end

local function ended(_, code)
  if vim.v.exiting ~= vim.NIL then
    return
  end
  local was = M.info
  job, M.info, M.agents, M.outside = nil, nil, {}, {}
  local waiting = pending
  pending = {}
  for _, done in pairs(waiting) do
    if was then
      pcall(done, "Pollux has exited: see :Pollux log")
    end
  end
  require("pollux.context").stop()
  require("pollux.diagnostics").stop()
  require("pollux.diff").lost()
  M.event("Stopped")
  if stopping then
    if stopping == "restart" then
      M.launch()
    end
    return
  end
  local last = vim.trim(table.concat(stderr, "\n"))
  M.note(("pollux exited with code %d. %s"):format(code, last))
  if was and vim.loop.now() - started > 10000 then
    failures = 0
  end
  failures = failures + 1
  if code == 2 and not was then
    M.say(("`%s` is too old for this plugin: install a newer one"):format(config.get().command), "error")
  elseif failures >= MAX_FAILURES then
    M.say(
      "Pollux keeps exiting: " .. (last ~= "" and last or "see :Pollux log") .. " (:Pollux start tries again)",
      "error"
    )
  else
    vim.defer_fn(function()
      if not job and not stopping then
        M.launch()
      end
    end, failures == 1 and 0 or 250 * 2 ^ failures)
  end
end

function M.launch()
  local program = config.program()
  if program == "" then
    local command = config.get().command
    M.say(("`%s` is not installed, or not on the PATH: see :help pollux-install"):format(command), "error")
    return
  end
  stopping, stderr, started = false, {}, vim.loop.now()
  local ok, channel = pcall(vim.fn.jobstart, { program, "ide" }, {
    on_stdout = reader(),
    on_stderr = function(_, data)
      for _, line in ipairs(data) do
        if line ~= "" then
          table.insert(stderr, line)
          M.note(line)
          if #stderr > 20 then
            table.remove(stderr, 1)
          end
        end
      end
    end,
    on_exit = ended,
  })
  if not ok or channel <= 0 then
    M.say(("cannot start `%s`: %s"):format(program, tostring(channel)), "error")
    return
  end
  job = channel
  vim.api.nvim_create_autocmd("VimLeavePre", {
    group = vim.api.nvim_create_augroup("pollux_client", {}),
    callback = function()
      -- Neovim kills what still runs; on Windows there is no gentle signal.
      if job then
        pcall(vim.fn.chanclose, job, "stdin")
        vim.fn.jobwait({ job }, EXIT_TIMEOUT)
      end
    end,
  })
  initialize()
end

--- Starts Pollux, unless it is running.
function M.start()
  failures = 0
  if not job then
    M.launch()
  elseif stopping then
    stopping = "restart"
  end
end

--- Stops Pollux. Agents that wait for an answer receive a rejection.
function M.stop()
  stopping = true
  if job then
    local ending = job
    vim.fn.chanclose(job, "stdin")
    vim.defer_fn(function()
      if job == ending then
        vim.fn.jobstop(job)
      end
    end, STOP_TIMEOUT)
  end
end

return M
