export const maxNameChars = 40

/** Characters of a name that nobody sees, or that change how the text around them is shown: zero width, the direction of writing, blank letters. */
const unseen = /[\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u2800]|(?!\ufe0f)\p{Default_Ignorable_Code_Point}/gu

/** A member's name as the protocol takes it: one line of what can be seen, not too long; empty where nothing is left. */
export function plainName(name: string): string {
  const line = name.replace(unseen, '').replace(/\p{Cc}+/gu, ' ')
  let kept = ''
  for (const character of line.trim()) {
    if (kept.length + character.length > maxNameChars) break
    kept += character
  }
  return /[\p{L}\p{N}\p{P}\p{S}]/u.test(kept) ? kept.trim() : ''
}
