// Which language highlights a file.

import { cpp } from "@codemirror/lang-cpp";
import { css } from "@codemirror/lang-css";
import { go } from "@codemirror/lang-go";
import { html } from "@codemirror/lang-html";
import { java } from "@codemirror/lang-java";
import { javascript } from "@codemirror/lang-javascript";
import { json } from "@codemirror/lang-json";
import { markdown } from "@codemirror/lang-markdown";
import { php } from "@codemirror/lang-php";
import { python } from "@codemirror/lang-python";
import { rust } from "@codemirror/lang-rust";
import { yaml } from "@codemirror/lang-yaml";
import { StreamLanguage, type StreamParser } from "@codemirror/language";
import { csharp, kotlin } from "@codemirror/legacy-modes/mode/clike";
import { dockerFile } from "@codemirror/legacy-modes/mode/dockerfile";
import { lua } from "@codemirror/legacy-modes/mode/lua";
import { ruby } from "@codemirror/legacy-modes/mode/ruby";
import { shell } from "@codemirror/legacy-modes/mode/shell";
import { standardSQL } from "@codemirror/legacy-modes/mode/sql";
import { swift } from "@codemirror/legacy-modes/mode/swift";
import { toml } from "@codemirror/legacy-modes/mode/toml";
import type { Extension } from "@codemirror/state";

const stream = (parser: StreamParser<unknown>) => StreamLanguage.define(parser);

export function language(path: string): Extension {
  const name = path.slice(Math.max(path.lastIndexOf("/"), path.lastIndexOf("\\")) + 1).toLowerCase();
  switch (name.slice(name.lastIndexOf(".") + 1)) {
    case "js": case "mjs": case "cjs": case "jsx":
      return javascript({ jsx: true });
    case "ts": case "mts": case "cts": case "tsx":
      return javascript({ jsx: name.endsWith("x"), typescript: true });
    case "py": case "pyi":
      return python();
    case "go":
      return go();
    case "rs":
      return rust();
    case "c": case "h": case "cc": case "cpp": case "cxx": case "hh": case "hpp":
      return cpp();
    case "java":
      return java();
    case "kt": case "kts":
      return stream(kotlin);
    case "cs":
      return stream(csharp);
    case "json":
      return json();
    case "css": case "scss":
      return css();
    case "html": case "htm": case "vue": case "svelte":
      return html();
    case "md": case "markdown":
      return markdown();
    case "php":
      return php();
    case "yaml": case "yml":
      return yaml();
    case "toml":
      return stream(toml);
    case "sh": case "bash": case "zsh": case "ksh": case "bashrc": case "profile": case "zshrc":
      return stream(shell);
    case "rb": case "rake": case "gemspec": case "gemfile": case "rakefile":
      return stream(ruby);
    case "sql":
      return stream(standardSQL);
    case "lua":
      return stream(lua);
    case "swift":
      return stream(swift);
    case "dockerfile": case "containerfile":
      return stream(dockerFile);
  }
  return [];
}
