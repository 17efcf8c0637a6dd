package systest

import "strings"

const npmShim = `@ECHO off
GOTO start
:find_dp0
SET dp0=%~dp0
EXIT /b
:start
SETLOCAL
CALL :find_dp0

IF EXIST "%dp0%\node.exe" (
  SET "_prog=%dp0%\node.exe"
) ELSE (
  SET "_prog=node"
  SET PATHEXT=%PATHEXT:;.JS;=;%
)

endLocal & goto #_undefined_# 2>NUL || title %COMSPEC% & "%_prog%" ARGUMENTS %*
`

// NPMShim returns a batch file as npm 7 and newer write it (cmd-shim 4 to 7). It starts
// Node.js with arguments, in which %dp0% is the directory of the file.
func NPMShim(arguments string) string {
	return strings.Replace(npmShim, "ARGUMENTS", arguments, 1)
}
