/** The value of a name that may come from outside, if the record itself has one: `constructor` stands in the prototype of each. */
export const ownOf = <T>(record: Readonly<Record<string, T>>, name: string): T | undefined =>
  Object.hasOwn(record, name) ? record[name] : undefined
