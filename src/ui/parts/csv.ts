/** Rows as CSV under their header; numbers with nine digits. */
export const csvOf = (
  header: readonly string[],
  rows: readonly (readonly (string | number)[])[],
): string => `${[header.join(','), ...rows.map((row) => row.map(cell).join(','))].join('\n')}\n`

/** Texts in quotes, so that commas, and what a spreadsheet would take for a formula, stay texts. */
const cell = (value: string | number): string =>
  typeof value === 'number'
    ? String(Number(value.toPrecision(9)))
    : value === ''
      ? ''
      : `"${(/^[=+\-@\t]/.test(value) ? `'${value}` : value).replaceAll('"', '""')}"`
