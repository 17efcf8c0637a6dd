-- Asks an agent a question, and shows its answer in a buffer.
local client = require("pollux.client")
local config = require("pollux.config")

local M = {}

-- The agents that can be asked.
M.agents = { "gemini", "codex", "claude", "copilot", "qwen", "opencode" }

local name = "pollux://answer"
local job -- of the question in progress
local conversation = {} -- dir: its directory; answered: whether it can be continued

local function append(buf, text)
  if not vim.api.nvim_buf_is_valid(buf) then
    return
  end
  local last = vim.api.nvim_buf_line_count(buf)
  local line = vim.api.nvim_buf_get_lines(buf, last - 1, last, false)[1]
  vim.bo[buf].modifiable = true
  vim.api.nvim_buf_set_lines(buf, last - 1, last, false, vim.split(line .. text, "\n", { plain = true }))
  vim.bo[buf].modifiable = false
end

-- Ends the question in progress.
local function stop()
  local running = job
  job = nil
  if running then
    vim.fn.jobstop(running)
  end
end

-- Returns the buffer with the answers, in a window. It is empty before the first question.
local function answers()
  local buf = vim.fn.bufnr("^" .. name .. "$")
  if buf < 0 then
    buf = vim.api.nvim_create_buf(false, true)
    vim.api.nvim_buf_set_name(buf, name)
    vim.bo[buf].bufhidden, vim.bo[buf].filetype = "wipe", "markdown"
    vim.keymap.set("n", "q", "<Cmd>bwipeout!<CR>", { buffer = buf, desc = "Close the answer" })
    vim.api.nvim_create_autocmd("BufWipeout", { buffer = buf, callback = stop })
    conversation = { dir = vim.fn.getcwd() }
  end
  if vim.fn.bufwinid(buf) < 0 then
    vim.cmd("botright sbuffer " .. buf)
    vim.wo.wrap = true
    vim.cmd("wincmd p")
  end
  return buf
end

-- Returns the lines of a range as a part of a question.
local function excerpt(opts)
  if opts.range == 0 then
    return ""
  end
  local path = vim.api.nvim_buf_get_name(0)
  path = path ~= "" and vim.fn.fnamemodify(path, ":.") or "unsaved text"
  local lines = vim.api.nvim_buf_get_lines(0, opts.line1 - 1, opts.line2, false)
  return ("%s, lines %d to %d:\n\n```\n%s\n```\n\n"):format(path, opts.line1, opts.line2, table.concat(lines, "\n"))
end

-- Asks a question. agent may be nil. A question continues the conversation in the buffer.
function M.ask(opts, agent, question)
  if question == "" then
    return client.say("add a question: :Pollux ask QUESTION", "error")
  end
  if job then
    return client.say("a question is still being answered: press q in its window to end it", "error")
  end
  local program = config.program()
  if program == "" then
    return client.say(("`%s` is not on the PATH"):format(config.get().command), "error")
  end
  local prompt = excerpt(opts) .. question
  local buf = answers()
  local argv = { program, "ask", "--stream" }
  if agent then
    vim.list_extend(argv, { "--agent", agent })
  end
  if conversation.answered then
    table.insert(argv, "--continue")
  end
  append(buf, (vim.api.nvim_buf_line_count(buf) > 1 and "\n" or "") .. "> " .. question .. "\n\n")
  local this
  this = vim.fn.jobstart(argv, {
    cwd = conversation.dir,
    on_stdout = function(_, data)
      append(buf, table.concat(data, "\n"))
    end,
    stderr_buffered = true,
    on_stderr = function(_, data)
      local text = table.concat(data, "\n")
      if text ~= "" then
        append(buf, "\n" .. text)
      end
    end,
    on_exit = function(_, code)
      append(buf, "\n* * *\n")
      if job == this then
        job = nil
        conversation.answered = conversation.answered or code == 0
      end
    end,
  })
  if this <= 0 then
    return append(buf, ("cannot start `%s`\n"):format(program))
  end
  job = this
  vim.fn.chansend(job, prompt)
  vim.fn.chanclose(job, "stdin")
  local last = vim.api.nvim_buf_line_count(buf)
  for _, window in ipairs(vim.fn.win_findbuf(buf)) do
    vim.api.nvim_win_set_cursor(window, { last, 0 })
  end
end

return M
