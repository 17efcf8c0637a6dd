# scripts/test.sh nightly reads this file: the tests run the newest release of each agent
# instead of the pinned one. What fails then is a difference between the two.
newest=
for agent in GEMINI:@google/gemini-cli CLAUDE:@anthropic-ai/claude-code CODEX:@openai/codex \
	COPILOT:@github/copilot OPENCODE:opencode-ai QWEN:@qwen-code/qwen-code; do
	variable=${agent%%:*}_VERSION
	pinned=$(sed -n "s/^[a-z]*=\${$variable:-\(.*\)}\$/\1/p" scripts/setup.sh)
	release=$(npm view "${agent#*:}" version)
	[ "$release" != "$pinned" ] || continue
	export "$variable=$release"
	newest="$newest
nightly: ${agent#*:} $release instead of $pinned"
done
printf '%s\n' "${newest#?}"
