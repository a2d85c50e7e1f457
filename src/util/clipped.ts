/** A text from outside as an error quotes it: at most 80 characters or `most`, the last of a longer one an ellipsis. */
export const clipped = (text: string, most = 80): string =>
  text.length <= most ? text : `${text.slice(0, most - 1)}…`

/** What an error is about, as its caller calls it: a file or a function. */
export const clippedName = (name: string): string => clipped(name, 200)
