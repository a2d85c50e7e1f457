/** Returns whether it is a list of these very items. Not in `kind-of.ts`, which the first load of the page has. */
export const isSameList = (list: unknown, of: readonly unknown[]): boolean =>
  Array.isArray(list) && list.length === of.length && of.every((one, at) => one === list[at])
