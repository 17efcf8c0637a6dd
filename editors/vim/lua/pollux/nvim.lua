-- The parts of autoload/pollux/nvim.vim that need Lua, or are faster in it.
local M = {}

local ns = vim.api.nvim_create_namespace("pollux")

--- Shows the user a message. level is "info", "warning" or "error".
function M.notify(text, level)
  local levels = vim.log.levels
  local builtin = type(vim.notify) == "function" and debug.getinfo(vim.notify, "S").source:find("editor.lua", 1, true)
  if builtin then -- a plugin that has replaced it shows all of the text
    text = vim.fn["pollux#client#Fitting"](text)
  end
  -- Inside a function of Vim script, Neovim says where an error was and asks for Enter.
  vim.schedule(function()
    if vim.v.exiting ~= vim.NIL then
      return -- a message could ask for a key, and Neovim would wait for it
    end
    vim.cmd("redraw") -- otherwise Neovim asks for Enter after a second message
    vim.notify(text, ({ warning = levels.WARN, error = levels.ERROR })[level] or levels.INFO)
  end)
end

--- Lets the user choose one of several lines.
function M.choose(title, lines)
  vim.ui.select(lines, { prompt = title .. ":" }, function(_, index)
    if index then
      vim.fn["pollux#nvim#Chosen"](index - 1)
    end
  end)
end

--- Returns the roots of the language servers.
function M.roots()
  local roots = {}
  local servers = vim.lsp and (vim.lsp.get_clients or vim.lsp.get_active_clients)() or {}
  for _, server in ipairs(servers) do
    local root = server.config and server.config.root_dir
    if root then
      table.insert(roots, vim.fn.fnamemodify(root, ":p"))
    end
  end
  return roots
end

--- Turns the calls at each key press on or off.
function M.follow_keys(on)
  vim.on_key(on == 1 and function()
    vim.fn["pollux#diff#Pressed"]()
  end or nil, ns)
end

-- Returns the number of removed lines that an inline view shows above a line.
local function removed_above(buf, line)
  local count = 0
  for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(buf, ns, { line - 1, 0 }, { line - 1, -1 }, { details = true })) do
    local details = mark[4]
    count = count + (details.virt_lines_above and #details.virt_lines or 0)
  end
  return count
end

--- Scrolls the removed lines above the first line of a buffer's window into view: Neovim does
--- not do that. If moved is set, it does so only while the cursor is in that line, so that the
--- user can scroll past them.
function M.reveal(buf, moved)
  local win = vim.fn.bufwinid(buf)
  if win == -1 then
    return
  end
  vim.api.nvim_win_call(win, function()
    local view = vim.fn.winsaveview()
    local top = view.topline == view.lnum or view.topline == 1 and not moved
    local count = top and removed_above(buf, view.topline) or 0
    if count > view.topfill then
      vim.fn.winrestview({ topfill = count })
    end
  end)
end

--- Highlights the hunks of an inline view.
function M.draw(buf, hunks)
  vim.api.nvim_buf_clear_namespace(buf, ns, 0, -1)
  local count = vim.api.nvim_buf_line_count(buf)
  local win = vim.fn.bufwinid(buf)
  local margin = win ~= -1 and vim.fn.getwininfo(win)[1].textoff or 2
  for _, h in ipairs(hunks) do
    for line = h.line, math.min(h.line - 1 + h.lines, count) do
      vim.api.nvim_buf_set_extmark(buf, ns, line - 1, 0, {
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
      vim.api.nvim_buf_set_extmark(buf, ns, math.min(h.line, count) - 1, 0, {
        virt_lines = virt,
        virt_lines_above = h.line <= count,
        virt_lines_leftcol = true,
      })
    end
  end
  M.reveal(buf)
  vim.api.nvim_create_autocmd("CursorMoved", {
    group = vim.api.nvim_create_augroup("pollux_reveal_" .. buf, {}),
    buffer = buf,
    callback = function()
      M.reveal(buf, true)
    end,
  })
end

local function filetype(buf, path, target)
  if vim.fn.has("nvim-0.8") == 1 then
    return vim.filetype.match({ filename = path, buf = buf })
  end
  return target > 0 and vim.bo[target].filetype
end

--- Sets the colours of a buffer as for the file at a path. Not 'filetype': its plugins and
--- language servers expect real files.
function M.highlight(buf, path, target)
  local ft = filetype(buf, path, target)
  if not ft or ft == "" then
    return
  end
  if vim.treesitter and vim.treesitter.language and vim.treesitter.language.get_lang then
    local lang = vim.treesitter.language.get_lang(ft) or ft
    if pcall(vim.treesitter.start, buf, lang) then
      return
    end
  end
  vim.bo[buf].syntax = ft
end

return M
