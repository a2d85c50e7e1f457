import { isMaker, makerName } from '../state/room-facts.ts'
import type { Run } from '../state/run.ts'
import type { Snapshot } from '../state/snapshot.ts'
import type { Wait } from '../state/waiting-facts.ts'
import { asSentence, inPageWords } from './failure-words.ts'
import type { Status } from './standing.ts'
import { unreachedOf } from './unreached.ts'

export const tabWaits = ({ why }: NonNullable<Run['waits']>): string => `This tab waits: ${why}`

/** Of a tab in a room whose run is on without it: what holds it out, and what to do. */
export function waitingStatus(snapshot: Snapshot, wait: Wait): Status {
  const say = (text: string): Status => ({ tone: 'idle', title: 'A run is in progress', text })
  switch (wait.is) {
    case 'barred':
      return barredStatus(snapshot, wait.text)
    case 'again': {
      const waits = snapshot.run?.waits
      return {
        tone: 'idle',
        title: 'Left out of the run',
        text: `${waits ? tabWaits(waits) : 'The run continues without this tab.'} It joins again soon.`,
        more: { summary: 'Error details', text: inPageWords(wait.text) },
      }
    }
    case 'closed': {
      const next = isMaker(snapshot) ? 'you start' : `${makerName(snapshot)} starts`
      return say(
        `This run takes no more tabs.${endWords(snapshot)} This tab gets a rank when ${next} the next run.`,
      )
    }
    case 'apart':
      return say(
        'Its ranks ask for other Links than this tab. Choose “automatic” under More settings, and rejoin.',
      )
    case 'soon':
      return say('This tab joins it, usually within seconds.')
  }
}

/** Of a rank whose values, bits or device failed again and again. */
const codesOfPutOut: readonly string[] = ['train.nan', 'train.diverged', 'gpu.lost']

function barredStatus(snapshot: Snapshot, text: string): Status {
  const without = 'The run continues without this tab.'
  const unreached = unreachedOf(snapshot)
  if (unreached) {
    const { title, text: cause, names } = unreached
    // Each two ranks of the run are linked: a reload alone changes nothing.
    const then = `Reload this tab once it can reach ${names}, or after ${names} left.`
    return { tone: 'bad', title, text: `${cause} ${without} ${then}` }
  }
  const isPutOut =
    snapshot.run?.end?.kind === 'failed' && codesOfPutOut.includes(snapshot.run.end.code)
  return {
    tone: 'bad',
    title: isPutOut ? 'This tab was put out of the run' : 'This tab could not join',
    text: `${without} Reload this tab to try again.`,
    more: { summary: 'Error details', text: asSentence(inPageWords(text)) },
  }
}

/** When the run ends, as its settings have it. */
function endWords({ proposed }: Snapshot): string {
  if (!proposed) return ''
  const { steps, epochs } = proposed
  if (steps) return ` It ends at step ${steps}.`
  return ` It ends after ${epochs} ${epochs === 1 ? 'epoch' : 'epochs'}.`
}
