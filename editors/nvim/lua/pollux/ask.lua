-- Asks an agent a question, and shows its answer in a buffer.
local client = require("pollux.client")
local config = require("pollux.config")

local M = {}

local name = "pollux://answer"
local job -- of the question in progress

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

-- Returns the buffer with the answers, in a window. It is empty before the first question.
local function answers()
  local buf = vim.fn.bufnr("^" .. name .. "$")
  if buf < 0 then
    buf = vim.api.nvim_create_buf(false, true)
    vim.api.nvim_buf_set_name(buf, name)
    vim.bo[buf].bufhidden, vim.bo[buf].filetype = "wipe", "markdown"
    vim.keymap.set("n", "q", "<Cmd>close<CR>", { buffer = buf, desc = "Close the answer" })
    vim.api.nvim_create_autocmd("BufWipeout", {
      buffer = buf,
      callback = function()
        if job then
          vim.fn.jobstop(job)
        end
      end,
    })
  end
  if vim.fn.bufwinid(buf) < 0 then
    vim.cmd("botright sbuffer " .. buf)
    vim.wo.wrap = true
  end
  return buf
end

-- Returns the lines of a range as a part of a question.
local function excerpt(opts)
  local buf = vim.api.nvim_get_current_buf()
  if opts.range == 0 then
    return ""
  end
  local path = vim.fn.fnamemodify(vim.api.nvim_buf_get_name(buf), ":.")
  local lines = vim.api.nvim_buf_get_lines(buf, opts.line1 - 1, opts.line2, false)
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
  local more = vim.api.nvim_buf_line_count(buf) > 1
  local argv = { program, "ask", "--stream" }
  if agent then
    vim.list_extend(argv, { "--agent", agent })
  end
  if more then
    table.insert(argv, "--continue")
  end
  append(buf, (more and "\n" or "") .. "> " .. question .. "\n\n")
  job = vim.fn.jobstart(argv, {
    on_stdout = function(_, data)
      append(buf, table.concat(data, "\n"))
    end,
    on_stderr = function(_, data)
      for _, line in ipairs(data) do
        if line ~= "" then
          append(buf, "\n" .. line .. "\n")
        end
      end
    end,
    on_exit = function()
      job = nil
      append(buf, "\n* * *\n")
    end,
  })
  vim.fn.chansend(job, prompt)
  vim.fn.chanclose(job, "stdin")
end

return M
