import { Component } from 'preact'
import { hueOf } from '../../src/ui/parts/hue.ts'
import { Panel } from '../../src/ui/parts/panel.tsx'
import { type Moment, nothingHeld, seenAt } from './moment.ts'
import type { HeldRun, Story } from './story.ts'
import { formatElement, heldWords, ranksIn } from './words.ts'

/** Max number of ranks side by side in a cell; more stand in rows. */
const sideBySide = 8

/** One row a rank, one cell a chunk: whose contributions it holds, and its numbers where they are few. */
export function HeldRows({ story, moment }: { story: Story; moment: Moment }) {
  const { settings, held, chunks } = story
  const size = settings.ranks
  const numbers = size > sideBySide ? undefined : story.numbers
  const { ms, arrivals, underWay } = moment
  return (
    <Panel id="held" title="What each rank's array holds" aside={`${size} chunks`}>
      <table class="held" data-many={size > sideBySide}>
        <thead>
          <tr>
            <th scope="col">
              <span class="unseen">rank</span>
            </th>
            {chunks.map(({ start, end }, chunk) => (
              <th key={start + chunk} scope="col" title={`elements ${start} to ${end - 1}`}>
                <span class="wide-only">chunk </span>
                {chunk}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {held.map((row, rank) => (
            <tr key={rank}>
              <th scope="row" style={hueOf(rank)}>
                {rank}
              </th>
              {row.map((history, chunk) => (
                <HeldCell
                  key={chunk}
                  size={size}
                  runs={seenAt(history, ms) ?? nothingHeld}
                  numbers={numbers && seenAt(numbers[rank][chunk], ms)}
                  isWrong={story.wrong[rank][chunk]}
                  isNew={arrivals.some(
                    (one) => one.to === rank && touches(one.range, chunks[chunk]),
                  )}
                  isSent={underWay.some(
                    ({ message }) => message.from === rank && touches(message.range, chunks[chunk]),
                  )}
                />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      <p class="quiet">
        One row a rank. Each field of a block is one rank's contribution,{' '}
        {size > sideBySide ? 'row by row' : 'from left to right'} in rank order; a block without
        gaps holds the sum of all. Underlined: being sent. Framed: just arrived.
        {story.wrong.flat().some(Boolean) &&
          ' A cross marks wrong bits: one was flipped on the way.'}
        {numbers && ' Below it are the numbers themselves, with one decimal.'}
      </p>
    </Panel>
  )
}

const touches = (a: { start: number; end: number }, b: { start: number; end: number }): boolean =>
  a.start < b.end && b.start < a.end

interface CellProps {
  readonly size: number
  readonly runs: readonly HeldRun[]
  readonly numbers: readonly number[] | undefined
  /** Once it has all contributions, its bits are wrong. */
  readonly isWrong: boolean
  /** Something has just arrived in it. */
  readonly isNew: boolean
  /** Some of it is on its way to another rank. */
  readonly isSent: boolean
}

/** Drawn again only when it has changed. */
class HeldCell extends Component<CellProps> {
  override shouldComponentUpdate(next: CellProps): boolean {
    const { runs, numbers, isNew, isSent, isWrong, size } = this.props
    return (
      next.runs !== runs ||
      next.numbers !== numbers ||
      next.isNew !== isNew ||
      next.isSent !== isSent ||
      next.isWrong !== isWrong ||
      next.size !== size
    )
  }

  override render({ size, runs, numbers, isNew, isSent, isWrong }: CellProps) {
    const isWhole = runs.length > 0 && runs.every((run) => isAll(run, size))
    return (
      <td data-new={isNew} data-sent={isSent} data-whole={isWhole} data-wrong={isWhole && isWrong}>
        <svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">
          <path class="all" d={wholes(runs, size)} />
          {Array.from({ length: size }, (_, rank) => (
            <path key={rank} class="some" style={hueOf(rank)} d={fieldsOf(rank, runs, size)} />
          ))}
        </svg>
        {isWhole && isWrong && (
          <span class="cross" aria-hidden="true">
            ✕
          </span>
        )}
        <span class="unseen">
          {heldWords(runs, size)}
          {isWhole && isWrong && ', with wrong bits'}
        </span>
        {numbers && (
          <span class="numbers">
            {numbers.map((value, at) => (
              <span key={at}>{formatElement(value)}</span>
            ))}
          </span>
        )}
      </td>
    )
  }
}

const isAll = ({ ranks }: HeldRun, size: number): boolean => ranksIn(ranks, size).length === size

/** The parts that hold all ranks, without gaps. In a square of 100. */
function wholes(runs: readonly HeldRun[], size: number): string {
  return runs
    .map((run, at) => {
      const left = 100 * (runs[at - 1]?.end ?? 0)
      return isAll(run, size) ? `M${left} 0H${100 * run.end}V100H${left}z` : ''
    })
    .join('')
}

/** The fields of a rank in parts that do not hold all. In a square of 100. */
function fieldsOf(rank: number, runs: readonly HeldRun[], size: number): string {
  const columns = size > sideBySide ? Math.ceil(Math.sqrt(size)) : size
  const h = 100 / Math.ceil(size / columns)
  return runs
    .map((run, at) => {
      if (!((run.ranks >> rank) & 1) || isAll(run, size)) return ''
      const begin = runs[at - 1]?.end ?? 0
      const w = (100 * (run.end - begin)) / columns
      const x = 100 * begin + w * (rank % columns) + 0.08 * w
      const y = h * Math.floor(rank / columns) + 0.08 * h
      return `M${x} ${y}h${0.84 * w}v${0.84 * h}h${-0.84 * w}z`
    })
    .join('')
}
