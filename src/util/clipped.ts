/** A text from outside as an error quotes it: at most 80 characters or `max`, the last of a longer one an ellipsis. */
export const clipped = (text: string, max = 80): string =>
  text.length <= max ? text : `${text.slice(0, max - 1)}…`

/** What an error is about, as its caller calls it: a file or a function. */
export const clippedName = (name: string): string => clipped(name, 200)

/** What another rank says of its error. */
export const clippedMessage = (message: string): string => clipped(message, 2000)

/** Texts that are not the same, as an error quotes them: of long ones the part around the first place where they differ. */
export function clippedToDifference(texts: readonly string[], max = 80): string[] {
  const [first = ''] = texts
  let at = 0
  while (at < first.length && texts.every((text) => text[at] === first[at])) at++
  return texts.map((text) => {
    const begin = Math.min(at - max / 2, text.length - max)
    return clipped(begin > 0 ? `…${text.slice(begin + 1)}` : text, max)
  })
}
