import { capitalized } from '../parts/format.ts'

/**
 * The text of an error as the page shows it: what the protocol calls an epoch or a membership is a run here, where epochs are passes over the
 * data.
 */
export const inPageWords = (text: string): string =>
  text
    .replace(/\b(e)poch (?=\d)/gi, (_, first: string) => (first === 'E' ? 'Run ' : 'run '))
    .replace(/\bmembership (?=\d)/g, 'run ')
    .replaceAll('frames of another membership', 'frames of another run')

/** What a run ended with comes in the words of links and ranks, which begin in the middle of a sentence; an address stays as it is. */
export const asSentence = (text: string): string =>
  /^\S*:\/\//.test(text) ? text : capitalized(text)

/** What it means that a run ended by an error of this code at this step, and what to do; null where the error is plain enough. */
export function plainFailure(code: string, step: number): string | null {
  if (code !== 'train.nan') return null
  const when = step > 0 ? `after step ${step}` : 'in its first step'
  return `Training became unstable ${when}: values grew until they were no longer finite. Usually the learning rate is too high. Divide it by 10 and start again; if that does not help, look for values in the data that are not numbers.`
}

/** Why a resumed run no longer has the saved run's bits, in one sentence; `differences` are those of the two records. */
export function resumedDifference(differences: readonly string[]): string {
  const ranks = /^ranks (\d+), now (\d+)$/.exec(
    differences.find((one) => one.startsWith('ranks ')) ?? '',
  )
  const why = ranks
    ? `The checkpoint was saved with ${ranks[1]} rank${ranks[1] === '1' ? '' : 's'} and resumes with ${ranks[2]}`
    : 'Something has changed since the checkpoint was saved'
  return `${why}, so the results may differ slightly from those of an uninterrupted run.`
}
