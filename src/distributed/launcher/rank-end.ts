/** How a rank of `tabring run` ended; crosses from its page to the launcher as JSON. */
export type RankEnd =
  | { isOk: true }
  | {
      isOk: false
      /** Of Tabring's errors; else empty. */
      code: string
      /** With the error's message and its causes; addresses are those of the built files. */
      stack: string
    }

/** The page function that takes it. */
export const endName = '__tabringEnd'
