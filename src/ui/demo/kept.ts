/** What this tab keeps of what a person gave to a demo, for its next runs, also while another demo is on show. */
export interface Kept<T> {
  value: T
}

const all: (() => void)[] = []

/** Made once for each view, with what there is before a person gives something. */
export function keptInTab<T>(none: T): Kept<T> {
  const kept = { value: none }
  all.push(() => {
    kept.value = none
  })
  return kept
}

/** A reset takes all of it away. */
export const forgetKept = (): void => {
  for (const forget of all) forget()
}
