// A reviewed text has to come back byte for byte. CodeMirror ends every line
// with LF; a text whose every line ends with CRLF is shown with LF and given
// back with CRLF, and in one that mixes them a CR is a character like others.

export function usesCRLF(text: string): boolean {
  return text.includes("\r\n") && !/\r(?!\n)|(?<!\r)\n/.test(text);
}

export const toLF = (text: string, crlf: boolean) => (crlf ? text.replaceAll("\r\n", "\n") : text);
export const fromLF = (text: string, crlf: boolean) => (crlf ? text.replaceAll("\n", "\r\n") : text);
