const most = 80

/** A text from outside as an error quotes it: at most 80 characters, the last of a longer one an ellipsis. */
export const clipped = (text: string): string =>
  text.length <= most ? text : `${text.slice(0, most - 1)}…`
