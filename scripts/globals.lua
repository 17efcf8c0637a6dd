-- Fails if the Lua files in $FILES use an undefined global. It reads their
-- bytecode: nvim --headless -c 'luafile globals.lua' -c 'qa!'
local bad = false
for _, file in ipairs(vim.split(vim.env.FILES, "%s+", { trimempty = true })) do
  local code = assert(loadfile(file))
  local listing = {}
  require("jit.bc").dump(code, {
    write = function(_, ...)
      table.insert(listing, table.concat({ ... }))
    end,
    flush = function() end,
    close = function() end,
  }, true)
  for name in table.concat(listing):gmatch('GGET[^\n]-;%s*"([^"]+)"') do
    if not _G[name] then
      print(file .. ": unknown global " .. name)
      bad = true
    end
  end
end
if bad then
  vim.cmd("cquit")
end
