/** One number for both axes, or one for rows and one for columns. */
export type Pair = number | readonly [number, number]

export const pair = (value: Pair): [number, number] =>
  typeof value === 'number' ? [value, value] : [value[0], value[1]]
