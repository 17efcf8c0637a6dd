-- :checkhealth pollux
local M = {}

function M.check()
  local h = vim.health or require("health")
  local start = h.start or h.report_start
  local ok, info, warn, bad =
    h.ok or h.report_ok, h.info or h.report_info, h.warn or h.report_warn, h.error or h.report_error
  local client = require("pollux.client")
  local config = require("pollux.config")
  local opts, program = config.get(), config.program()

  start("pollux")
  if program ~= "" then
    ok(("`%s` is %s: %s"):format(opts.command, program, vim.trim(vim.fn.system({ program, "--version" }))))
  else
    bad(("`%s` is not on the PATH"):format(opts.command), { ":help pollux-install" })
    return
  end
  if client.ready() then
    ok(("the companion is running on port %d"):format(client.info.port))
    info("roots: " .. table.concat(require("pollux.context").roots(), ", "))
  else
    bad("the companion is not running", { ":Pollux start", ":Pollux log" })
  end
  local installed = vim.tbl_filter(function(agent)
    return vim.fn.executable(agent.command) == 1
  end, client.info and client.info.agents or {})
  if opts.cli or #installed > 0 or vim.fn.executable("npx") == 1 then
    ok("an agent can be started")
  elseif client.ready() then
    warn("no agent is installed", { "npm install -g @google/gemini-cli" })
  end
  if #client.agents > 0 then
    for _, c in ipairs(client.agents) do
      ok(("connected: %s"):format(c.label or c.name))
    end
  else
    info("no agent is connected; :Pollux open starts one; in a running Gemini CLI, type /ide enable and restart it")
  end
end

return M
