/** A table in Markdown. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  return [line(head), `|${'---|'.repeat(head.length)}`, ...rows.map(line)].join('\n')
}

/** What a generated page says of itself. */
export const madeBy = (source: string): string =>
  `<!-- Made by \`npm run docs\` from ${source}; a test fails where the two differ. -->`
