-- Starts Pollux with Neovim, and defines its command and mappings.
if vim.g.loaded_pollux then
  return
end
vim.g.loaded_pollux = 1
if vim.fn.has("nvim-0.7") == 0 then
  vim.api.nvim_echo({ { "pollux: Neovim 0.7 or newer is needed", "WarningMsg" } }, true, {})
  return
end

vim.api.nvim_create_user_command("Pollux", function(opts)
  require("pollux.command").run(opts)
end, {
  nargs = "*",
  range = true,
  bang = true,
  desc = "Pollux: open an agent, ask it, review its changes",
  complete = function(...)
    return require("pollux.command").complete(...)
  end,
})

for _, name in ipairs({
  "open",
  "toggle",
  "send",
  "diagnostics",
  "accept",
  "reject",
  "next",
  "list",
  "next-hunk",
  "previous-hunk",
  "redo-hunk",
  "accept-hunk", -- its older name
  "undo-hunk",
  "status",
}) do
  vim.keymap.set("n", "<Plug>(pollux-" .. name .. ")", "<Cmd>Pollux " .. name .. "<CR>")
end
-- Removes the empty buffers of diffs that a session file has restored.
vim.api.nvim_create_autocmd("BufReadCmd", {
  pattern = "pollux://*",
  callback = function(args)
    vim.schedule(function()
      pcall(vim.api.nvim_buf_delete, args.buf, { force = true })
    end)
  end,
})

vim.keymap.set("x", "<Plug>(pollux-open)", "<Cmd>Pollux open<CR>")
vim.keymap.set("x", "<Plug>(pollux-send)", ":Pollux send<CR>")
vim.keymap.set("x", "<Plug>(pollux-diagnostics)", ":Pollux diagnostics<CR>")

local function start()
  if require("pollux.config").get().autostart then
    require("pollux.client").start()
  end
end
if vim.v.vim_did_enter == 1 then
  vim.schedule(start) -- after setup(), if a plugin manager loads the plugin late
else
  vim.api.nvim_create_autocmd("VimEnter", { once = true, callback = start })
end
