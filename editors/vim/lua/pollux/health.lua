-- :checkhealth pollux
local M = {}

function M.check()
  local h = vim.health or require("health")
  local start = h.start or h.report_start
  local ok, info, warn, bad =
    h.ok or h.report_ok, h.info or h.report_info, h.warn or h.report_warn, h.error or h.report_error
  local command, program = vim.fn["pollux#Command"](), vim.fn["pollux#Program"]()
  local ready, companion, agents =
    vim.fn["pollux#client#Ready"]() == 1, vim.fn["pollux#client#Info"](), vim.fn["pollux#client#Agents"]()

  start("pollux")
  if program ~= "" then
    ok(("`%s` is %s: %s"):format(command, program, vim.trim(vim.fn.system({ program, "--version" }))))
  else
    bad(("`%s` is not on the PATH"):format(command), { ":help pollux-install" })
    return
  end
  if ready then
    ok(("the companion is running on port %d"):format(companion.port))
    info("roots: " .. table.concat(vim.fn["pollux#context#Roots"](), ", "))
  else
    bad("the companion is not running", { ":Pollux start", ":Pollux log" })
  end
  local installed = vim.tbl_filter(function(agent)
    return vim.fn.executable(agent.command) == 1
  end, companion.agents or {})
  if #vim.fn["pollux#Option"]("cli") > 0 or #installed > 0 or vim.fn.executable("npx") == 1 then
    ok("an agent can be started")
  elseif ready then
    warn("no agent is installed", { "npm install -g @google/gemini-cli" })
  end
  if #agents > 0 then
    for _, c in ipairs(agents) do
      ok(("connected: %s"):format(c.label or c.name))
    end
  else
    info("no agent is connected; :Pollux open starts one; in a running Gemini CLI, type /ide enable and restart it")
  end
end

return M
