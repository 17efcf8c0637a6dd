# make demo   try Pollux with the real Gemini CLI on a sample project
# make test   install what the tests need and run everything that CI runs
# make nightly  the same with nothing shortened and the newest agents, then fuzzing, then, as
#             root, the unit tests of Windows and of linux/arm64
# make bench  measure Pollux and write docs/BENCHMARKS.md; BENCH='-of warm' adds options
# make windows  run the unit tests of Windows, and the bridge with the real CLI, under Wine, as root
# make arm64  run the unit tests of linux/arm64 under qemu, as root
# make macos  on a Mac: run the unit tests and the conformance kit

CLI := $(CURDIR)/.cache/npm/gemini-0.61.0/node_modules/.bin

.PHONY: build demo test nightly check web bench screenshots fuzz release smoke windows macos arm64
build:
	CGO_ENABLED=0 go build -tags grpcnotrace -o pollux . # as in a release

demo:
	@./scripts/progress.sh "Building Pollux" env CGO_ENABLED=0 go build -v -o pollux .
	@./scripts/progress.sh "Installing Gemini CLI" ./scripts/setup.sh cli
	@PATH="$(CLI):$$PATH" ./pollux demo

test:
	./scripts/test.sh

nightly:
	@status=0; \
	./scripts/test.sh nightly || status=$$?; \
	./scripts/fuzz.sh 20s || status=$$?; \
	if [ "$$(id -u)" = 0 ]; then ./scripts/windows.sh || status=$$?; ./scripts/arm64.sh || status=$$?; \
	else echo "nightly: Windows and arm64 are left out: run it as root" >&2; fi; \
	exit $$status

check:
	./scripts/check.sh

web:
	./web/build.sh

bench: build
	./scripts/setup.sh agents
	go run ./bench -write docs/BENCHMARKS.md $(BENCH)

screenshots:
	./scripts/setup.sh
	POLLUX_E2E=require go test -count=1 -run 'TestPageEditsAndAccepts|TestDemo|TestPictures|TestEditorQuestion' ./e2e -screenshots "$(CURDIR)/docs"

fuzz:
	./scripts/fuzz.sh 60s

release:
	./scripts/release.sh

smoke:
	./scripts/smoke.sh

windows:
	./scripts/windows.sh
	./scripts/windows.sh bridge

macos:
	./scripts/macos.sh

arm64:
	./scripts/arm64.sh
