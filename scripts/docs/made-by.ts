/** What a generated page says of itself. */
export const madeBy = (source: string): string =>
  `<!-- Made by \`npm run docs\` from ${source}; a test fails where the two differ. -->`
