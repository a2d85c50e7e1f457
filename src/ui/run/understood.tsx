import type { Reading } from '../../trainer/settings/demo-meta.ts'
import { formatCount } from '../parts/format.ts'
import type { Series } from '../parts/series.ts'
import { last } from '../parts/series.ts'
import { metaOfDraft } from '../settings/list.ts'
import { settingsOfRoom } from '../state/room-facts.ts'
import { advances, awaited, hasEndedWithout, hasOwnModels } from '../state/run-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'

/** How far the network has come, as one number for people who do not know its metric. */
export function Understood({ snapshot }: { snapshot: Snapshot }) {
  const { number, words, note } = understood(snapshot)
  return (
    <section class="understood" aria-label="What the network can do">
      <p>
        {number && <strong class="display">{number}</strong>} <span>{words}</span>
      </p>
      <p class="quiet">{note}</p>
    </section>
  )
}

/** That number and what it says; before the first one, what it will say. */
export function understood(snapshot: Snapshot) {
  const figure = figureOf(snapshot)
  // The next run may be of another demo than the one that gave the figure.
  const ofFigure = figure && snapshot.run?.config
  const config = ofFigure ?? settingsOfRoom(snapshot) ?? snapshot.draft
  const { reading } = metaOfDraft(snapshot.experiments, config)
  if (!figure) return { number: '', words: coming[reading.as](reading.of), note: '' }
  const said = sayings[reading.as](figure.value, wordsFor(reading, figure.isNew))
  return { ...said, note: noteOf(snapshot, figure) }
}

interface Figure {
  /** Of the demo's metric. */
  readonly value: number
  /** Of samples that the model does not train on. */
  readonly isNew: boolean
  readonly step: number
}

/** A step's samples are few: the mean of these last steps says more. */
const meanOf = 20

/** The newest figure of held-out samples; before the first one, of those of the last steps. */
function figureOf({ run, lobby }: Snapshot): Figure | null {
  if (!run) return null
  const { end, accuracy, trainMetric, step } = run
  if (end?.kind === 'finished') return { value: end.result.value, isNew: true, step }
  if (hasEndedWithout(run) && lobby?.state === 'finished' && lobby.reached)
    return { value: lobby.reached.value, isNew: true, step }
  if (accuracy.length > 0)
    return { value: last(accuracy), isNew: true, step: accuracy.xs[accuracy.length - 1] }
  const value = meanOfLast(trainMetric)
  return Number.isFinite(value) ? { value, isNew: false, step } : null
}

function meanOfLast({ ys, length }: Series): number {
  const first = Math.max(0, length - meanOf)
  let sum = 0
  for (let i = first; i < length; i++) sum += ys[i]
  return sum / (length - first)
}

const wordsFor = ({ of }: Reading, isNew: boolean): string =>
  isNew ? `new ${of}` : `${of} that it trains on`

type Saying = (value: number, of: string) => { readonly number: string; readonly words: string }

const sayings: Readonly<Record<Reading['as'], Saying>> = {
  right: (value, of) => ({
    // All are right only where none is wrong.
    number: formatCount(value < 1 ? Math.min(99, Math.round(100 * value)) : 100),
    words: `of 100 ${of.replace(/^(new \w+|\w+)/, '$1s')} are right`,
  }),
  off: (value, of) => ({
    number: formatCount(100 * Math.sqrt(value)),
    words: `of 100: so far off is each ${of}, on average`,
  }),
  choices: (value, of) => {
    const choices = formatCount(Math.max(1, 2 ** value))
    return {
      number: `1 of ${choices}`,
      words: `it guesses each ${of} as if ${choices} were equally likely`,
    }
  },
}

/** What stands here once there is a number. */
const coming: Readonly<Record<Reading['as'], (of: string) => string>> = {
  right: (of) => `Here it will say how many of 100 ${of}s the network gets right.`,
  off: (of) => `Here it will say how far off each ${of} is.`,
  choices: (of) => `Here it will say how well the network guesses the next ${of}.`,
}

function noteOf({ run }: Snapshot, { step }: Figure): string {
  if (!run) return ''
  const whose = hasOwnModels(run) ? `, of rank ${run.rank}'s own model` : ''
  const when = `after step ${formatCount(step)}${whose}`
  if (run.end || run.paused || advances(run)) return when
  const away = awaited(run)
  return away.length > 0
    ? `${when}; nothing is newer while all wait for ${away.join(', ')}`
    : `${when}; nothing is newer yet`
}
