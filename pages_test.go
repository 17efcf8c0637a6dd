package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// securityTests names the tests of each claim of docs/SECURITY.md, by words of the claim.
var securityTests = map[string]string{
	"An accept succeeds only when the file holds the accepted text": "TestAcceptedButNotWritten TestGemini TestJournalHasTheAcceptedText",
	"You can decide on a change only after it has been in view for half a second": `
		TestPageDoubleClick TestPageKeyTwiceOrHeld TestPageAnotherTookThePlace TestPageBehindTheKeys
		TestSettle TestHeldKey TestReviewPopupWhileTyping
		TestEditorKeyMeantForAnother TestEditorTooEarly TestEditorHeldKey TestEditorCommandBegunTooEarly TestEditorTextFromOutside`,
	"`send` pastes text into a tmux pane only while the agent has the foreground": "TestPaste TestPasteAgain TestPasteRefused",
	"again before it presses Enter":                                               "TestPasteWithoutEnter",
	"the text reaches no shell, no question and no dialog of six agents":          "TestSendStates TestSendAtStart TestInputLine TestMention",
	"`send` pastes nothing while a change of that agent waits":                    "TestSendWhileADiffIsOpen",
	"The review page cannot send":                                                 "TestPageSendsNothing",
	"press Enter only if the terminal then shows the text":                        "TestEditorAnswersNoQuestion",
	"A file that changed after the proposal is not overwritten without asking":    "TestGemini",
	"A change that cannot be displayed is answered only in the agent's terminal":  "TestWhatCannotBeDisplayedIsAnsweredInTheTerminal",
	"If the review page cannot send a text, you can still copy it":                "TestPageReconnects TestPageTypedAfterAccept TestPageOlderText",
	"Saving a file keeps its mode, owner, hard links and extended attributes": `
		TestReplaceFileNeverNarrowsTheFile TestReplaceFileKeepsModeAndOwner TestReplaceFileKeepsHardLinks TestReplaceFileKeepsExtendedAttributes`,
	"The temporary file that is left, `.pollux-*.tmp`, is removed later":                     "TestReplaceFileRemovesLeftovers TestTempFiles TestSweep",
	"The journal deletes no entry that it cannot read, and none that a running companion":    "TestUnreadableEntriesStay TestNoFileDescriptors TestBounds TestMaxEntries",
	"Several companions can share it":                                                        "TestProcessesShareAJournal TestUnfinishedEntriesStay",
	"A jump of the clock deletes nothing younger than a week":                                "TestClockJumps",
	"If a text cannot be written, Pollux says so and writes it later":                        "TestTextIsWrittenLater TestTextOfAnEndedChangeIsWrittenLater TestAcceptedOnAFullDisk TestEntryIsMadeLater TestEntryIsMadeAgain",
	"do not overwrite what another program writes at the same time":                          "TestEditFile",
	"Every request or connection needs a random token of 128 bits":                           "TestRefusals",
	"Each request needs a random secret, and requests of web pages are refused":              "TestRefused",
	"on Linux and macOS Pollux asks the system who has connected":                            "TestClaim TestClaimInALink TestPeerOf",
	"Neither idle connections nor junk of your own programs keep Codex CLI out":              "TestIdleConnections TestJunk",
	"Requests without the token hold no resources for long":                                  "TestRefusedRequestsAreNotHeld TestStrangersAreFew TestStrangersHaveLittleTime TestSlowStrangersDoNotKeepTheCLIOut",
	"If requests use up all file descriptors, the socket works again":                        "TestAccept",
	"The discovery file and its directory are yours alone":                                   "TestPublishWritesTheContractsFile TestPublishRefusesSomebodyElsesPlace TestPublishRefusesALinkOfAnother TestPrune",
	"The token for Claude Code and opencode ends with the companion":                         "TestEndpointIsForgotten TestClaudeTraps",
	"A companion accepts an old token only on its old port":                                  "TestAnotherPortHasAnotherToken TestEndpointTaken TestEndpointAfterAKill",
	"On Linux it then serves only processes of you and of root":                              "TestOldTokenIsForThisUserOnly TestPeerUser TestClaudeTraps",
	"No command talks to a socket that another user could have made":                         "TestForeignSocketsAreRefused TestTrustedPeer",
	"commands take only the variables that a companion sets":                                 "TestAttachTakesOnlyACompanionsVariables",
	"The pool and its bridges ask the system who is at the other end":                        "TestPeerOf",
	"A pool does not replace a file that is not a socket":                                    "TestListenRefuses",
	"A program that is not a pool gets no request":                                           "TestWelcome",
	"A malformed message ends its own connection and nothing else":                           "FuzzServer",
	"never into arguments, which every user can read":                                        "TestArguments",
	"`pollux doctor` prints no token and no proxy password":                                  "TestDoctor",
	"its `--report` for others quotes no text, path or name at all":                          "TestDoctorReport",
	"It runs no program and connects to no address that another user's file names":           "TestDoctorTrustsNoFileOfAnother TestReplayHostileFiles",
	"`--fix` changes only what is yours, after you have agreed, and follows no link":         "TestDoctorFix TestDoctorFixFollowsNoLink",
	"Pollux never signals another program that has got the process ID":                       "TestStopSparesReusedPID TestStopSignalsNoReapedChild TestSignalTreeSignalsOnlyChildren",
	"neither a page nor a host name that it rebinds reaches the companion":                   "TestRefusals TestOtherSites",
	"The review page has its own port on the loopback interface":                             "TestPageIsPrivate",
	"It receives no token of an agent":                                                       "TestPageGetsNoToken",
	"receives nothing that would open the review page":                                       "TestPageSecretStaysInThePage TestPageLinks",
	"A link opens the page once":                                                             "TestLink TestLinkOfAnother",
	"only the 256 newest unused links work":                                                  "TestLinksAreBounded",
	"Everything else needs an unused link or the page's secret":                              "TestPageIsPrivate TestLinkOfAnother TestStrangersHaveLittleTime",
	"cannot control your terminal":                                                           "TestVisible TestReviewSeveral TestLine TestOutputSteersNoTerminal TestFitShowsNamesPlainly TestAgentNames TestJournalShowOnATerminal TestJournalRestorePrintsPathsSafely",
	"They do not reach a shell where editors call one":                                       "TestKakoune TestHelix",
	"No symbolic link leads a review, a save or a restore out of the workspace":              "TestWhatCannotBeDisplayedIsAnsweredInTheTerminal TestHiddenChangeOutsideTheWorkspace TestDecisionsStayInTheWorkspace TestReplaceInStaysInside TestJournalRestoreAfterALinkChanged",
	"Files that are ignored or look like secrets are not sent to the agent":                  "TestExcluded TestSendExcluded",
	"nor are their diagnostics":                                                              "TestDiagnostics TestEmacsElsewhere",
	"A file whose ignore rules cannot all be read, or are too many, is not sent":             "TestIgnoreFilesAreBounded TestUnreadableRulesExclude",
	"A FIFO, a device or a million brackets does no harm":                                    "TestReadFile TestHostileFiles TestReadHostileFiles TestHostileEnvFile TestInstallRefusesHostileSettings TestNesting TestJournalRestoresRegularFiles",
	"git runs no fsmonitor, hook, filter, remote or pager of the repository's configuration": "TestRepositoryIsNotTrusted TestOutsideRunsNoProgramOfTheRepository TestWithoutFilters",
	"No link leads the bridge's reads or changes out of the directory":                       "TestFiles TestChanges TestOverlayRefuses TestCallsAllow TestLeadsOut",
	"A warm process belongs to one directory":                                                "TestWarmIsolation",
	"Its modes, rules, commands and skills do not let an agent that":                         "TestMode TestFirstChangeIsAsked",
	"The other agents load none of them":                                                     "TestAskCopilot TestAskOpencode TestAskQwen TestAskClaudeReadOnly TestAskCodex",
	"Through the bridge the model can read and search, and change nothing":                   "TestBridgeIsReadOnly TestAskCodex TestAskClaudeReadOnly TestAskCopilot TestAskQwen TestAskOpencode",
	"An agent that ignores the policy, or a tool that runs anyway, ends the call":            "TestIgnoredPolicyEndsTheRun TestStrayToolEndsTheRun TestRunners",
	"Gemini CLI's policy denies paths and patterns that lead out of the working directory":   "TestPolicyKeepsPathsInside TestPolicyIsTaken TestBridgeReadsOnlyItsDirectory",
	"In change mode its tools write to Pollux":                                               "TestWarmChangeMode",
	"The disk is checked afterwards":                                                         "TestSnapshotSeesWrites TestSnapshotSeesEachChange",
	"An edit that does not fit its file, or is outside the directory, is an error":           "TestChanges",
	"a proposal changes nothing before you accept it, and never decides itself":              "TestEditorDecidesOnlyWhenAsked",
	"Behind the wall, the agent can read and run all that you can":                           "TestOutside TestInside TestFiles TestParents TestStrangePaths TestWritable",
	"A test takes the policy away and lets the model call its tools for writing":             "TestWallHoldsWithoutThePolicy",
	"The agent works behind the wall, and Pollux ends it as before":                          "TestBridgeSession TestSameProcess TestBridgeLeavesNoCLI",
	"With `bridge.wall = \"require\"` no agent is asked without the wall":                    "TestWall TestPoolWithoutTheWall TestWallIsRequired",
	"An agent of your settings (`[agents.NAME]`), which Pollux does not know":                "TestWallOfAnUnknownAgent TestAskCustom TestRequestsAreRefused TestCustomAgentStarts TestCustomAgentIsNotRun",
	"uses no conversation without these permissions":                                         "TestAskCodex TestConnUnenforced",
	"Malformed, oversized or unexpected messages do not end the session":                     "TestNotMessages TestLines TestJunkDoesNotBlock TestMessageOverTheLimit",
	"No prompt runs a command of the agent":                                                  "TestNoPromptIsACommand TestNoToolRunsACommand TestBridgeRunsNoCommand TestEscape",
	"Values that look like flags are refused":                                                "TestQueryInput",
	"Running and waiting calls, answers, conversations and jobs are bounded":                 "TestLeavingUsesNoTurn TestChunkCacheIsBounded TestConversationsAreBounded TestOutputIsBounded",
	"the output that waits for a client that does not read":                                  "TestClientThatDoesNotReadIsGivenUp TestOutbox TestHTTPHalfClosed",
	"Several callers that wait for the same job share nothing that changes":                  "TestJobWaiters",
	"However the client ends, no process is left behind":                                     "TestBridgeLeavesNoCLI TestWarmStress TestBridgeEndsForADeafClient TestDeafPluginEnds",
	"The agent receives only an allow-list of environment variables":                         "TestEnvironment TestGeminiRunners",
	"the key of one MCP client is never used for another":                                    "TestEnvironmentsDoNotMix TestSourceKey",
	"nor is a conversation continued for a client with other variables":                      "TestConversationsBelongToTheirSource",
	"A conversation ends with its bridge":                                                    "TestConversationsEndWithTheirBridge",
	"shows no variable of a bridge and no prompt":                                            "TestStatusNamesNoSecret",
	"Keys are removed from error messages and from the log":                                  "TestSecretsAreTakenOut TestLineWithoutSecrets TestFailuresOfASource",
	"Change mode copies no credentials and no `.env`":                                        "TestPrivateHome TestPrivateHomeWithoutLinks TestWarmChangeMode",
	"The next start removes what a killed bridge left":                                       "TestStaleDirectoriesAreRemoved TestBridgeLeavesNoCLI",
	"Settings files that Pollux creates, and that may hold keys, have mode 0600":             "TestInstallMakesPrivateFiles TestEnableIDEMakesPrivateFile",
	"has a protected access control list that names you alone":                               "TestPrivate TestOwnerOnlyList TestRightsOfOthers",
	"A directory of another user is refused":                                                 "TestForeignFiles",
	"a socket is a private file with the random name of a named pipe":                        "TestSocket",
	"none of your other programs can make a pool run a program with raised rights":           "TestPipeSecurity TestPipeOfElevatedProcess TestSocketName",
	"no change of a device, a stream or a name that ends in a dot or a space":                "TestSpecial TestOverlayRefuses",
	"a proposal or an attachment on a network share that holds no folder of yours":           "TestOnOtherServer",
}

// pageTests names tests of other pages. A name may end in the name of a subtest.
var pageTests = map[string]string{
	"docs/CLAUDE-CODE.md": `
		TestBeforeWrite TestClaude/session
		TestClaudeDiagnostics TestClaudeEnv TestClaudeModes
		TestClaudeTraps/another_user TestClaudeTraps/no_view TestContext TestDiagnosticsTimeout
		TestDiagnostics TestEditorDiagnostics/emacs_with_Flycheck
		TestEditorDiagnostics/emacs_with_Flymake TestEditorDiagnostics/nvim
		TestEditorDiagnostics/vim_with_ALE TestGetDiagnostics TestInSpelling TestLockFile TestLockFileDeleted
		TestNewSelection TestOpenDiff TestOpencode TestFirstChangeIsAsked TestRival
		TestSelectionAndLinks`,
	"docs/CODEX.md": `
		TestAnswer TestBusyConnections TestClaimInALink TestClaim TestCodex/another_program
		TestCodex/context TestCodex/two_editors TestIdleConnections TestJunk TestLimits
		TestNamedPipe TestNewContext TestOwner TestPreferred TestReplacedClaim TestSiblings TestStepBack
		TestStoppedSibling`,
	"docs/CODING-AGENTS.md": `
		TestClaudeDiagnostics TestClaudeModes TestClaude/session TestCodex/context TestCopilot/session
		TestDoctorAgents TestDoctorClaude TestDoctor TestEditorAgents TestEditorReadOnly TestEditorSends
		TestOldRelease TestOpencode TestSendStates TestSendToClaude TestSendToGemini`,
	"docs/COMPANION.md": `
		TestAcceptedButNotWritten TestCloseFlushesAndEndsGracefully TestKeepAliveComments TestNpmSDK
		TestOldRelease TestOpenDiffRefusals TestPIDs TestSendToGemini TestSpellingsOfAPath
		TestGemini TestPageEditsAndAccepts TestTrap6EditorGoneAnswersTheCLI
		TestHTTPStreams TestMethods
		TestWhatCannotBeDisplayedIsAnsweredInTheTerminal`,
	"docs/CONFORMANCE.md": `
		TestConformanceOfNeovim TestFaults`,
	"docs/COPILOT.md": `
		TestContext TestCopilot/session TestCopilot/trust TestCopilot/no_view
		TestHTTPGone TestEditorReadOnly TestKilled TestLockStays TestLock TestOtherTools TestPageReadOnly
		TestPrune TestRefused TestReviewReadOnly TestTextRules`,
	"docs/DOCTOR.md": `
		TestDoctorAgents TestDoctorClaude TestDoctorContainer TestDoctorReport TestDoctor`,
	"docs/REMOTE.md": `
		TestPaths TestRelayAnswersAfterTheEnd TestRemoteContainer TestRemoteSSH`,
	"docs/POOL.md": `
		TestPoolSSH TestPoolSSHLost TestPoolContainer TestPoolRemoteErrors`,
}

// untested are the claims of docs/SECURITY.md without a test.
var untested = []string{
	"At the default level, logs contain no tokens",
}

// TestSecurityClaimsHaveTests checks that each claim of docs/SECURITY.md, which is a paragraph
// of a list that does not say what is left, has a test, and that each named test exists.
func TestSecurityClaimsHaveTests(t *testing.T) {
	doc, err := os.ReadFile("docs/SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	var claims []string // with single spaces
	left := true        // the introduction
	for block := range strings.SplitSeq(string(doc), "\n\n") {
		if !strings.HasPrefix(block, "- ") {
			left = strings.HasSuffix(block, "What is left:") || strings.HasPrefix(block, "What the wall does not cover")
			continue
		}
		for item := range strings.SplitSeq(strings.TrimPrefix(block, "- "), "\n- ") {
			if !left {
				claims = append(claims, strings.Join(strings.Fields(item), " "))
			}
		}
	}
	names := func(claim string, all map[string]string) bool {
		for words := range all {
			if strings.Contains(claim, words) {
				return true
			}
		}
		return false
	}
	exceptions := make(map[string]string)
	for _, words := range untested {
		exceptions[words] = ""
	}
	for _, claim := range claims {
		if !names(claim, securityTests) && !names(claim, exceptions) {
			t.Errorf("securityTests names no test of this claim: %s", claim)
		}
	}
	page := strings.Join(strings.Fields(string(doc)), " ")
	exist := existingTests(t)
	for words, tests := range securityTests {
		if !strings.Contains(page, words) {
			t.Errorf("docs/SECURITY.md does not say %q", words)
		}
		for test := range strings.FieldsSeq(tests) {
			if !exist[test] {
				t.Errorf("securityTests names %s, which does not exist", test)
			}
		}
	}
}

// TestPagesHaveTests checks that each test that pageTests names exists.
func TestPagesHaveTests(t *testing.T) {
	exist := existingTests(t)
	for page, tests := range pageTests {
		if _, err := os.Stat(page); err != nil {
			t.Error(err)
		}
		for test := range strings.FieldsSeq(tests) {
			if name, _, _ := strings.Cut(test, "/"); !exist[name] {
				t.Errorf("%s: there is no test %s", page, name)
			}
		}
	}
}

// existingTests returns the names of all tests of the project.
func existingTests(t *testing.T) map[string]bool {
	t.Helper()
	exist := make(map[string]bool)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && path != ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllSubmatch(source, -1) {
			exist[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return exist
}
