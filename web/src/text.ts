// A text must come back byte for byte. CodeMirror ends every line with LF, so a text
// in which every line ends with CRLF is shown with LF and converted back. In a text with
// mixed line endings, CR is an ordinary character.

export function usesCRLF(text: string): boolean {
  return text.includes("\r\n") && !/\r(?!\n)|(?<!\r)\n/.test(text);
}

export const toLF = (text: string, crlf: boolean) => (crlf ? text.replaceAll("\r\n", "\n") : text);
export const fromLF = (text: string, crlf: boolean) => (crlf ? text.replaceAll("\n", "\r\n") : text);
