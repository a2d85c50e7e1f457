/** A character as people can see it: spaces and line ends have signs. */
export const shown = (character: string): string =>
  character === ' ' ? '␣' : character === '\n' ? '↵' : character === '\t' ? '⇥' : character

/** A character in words, for a list. */
export const named = (character: string): string =>
  character === ' '
    ? 'space'
    : character === '\n'
      ? 'new line'
      : character === '\t'
        ? 'tab'
        : character

export const inPercent = (share: number): string => `${(100 * share).toFixed(1)} %`
