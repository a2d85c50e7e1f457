/** Returns whether a number is whole and not below 0: for `checkNumber`. Not in `options.ts`, which the first load of the page has. */
export const isWhole = (value: unknown): boolean =>
  Number.isSafeInteger(value) && Number(value) >= 0
