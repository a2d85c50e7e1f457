import { Component } from 'preact'
import { hueCount, hueOf } from '../../src/ui/parts/hue.ts'
import { Panel } from '../../src/ui/parts/panel.tsx'
import { type Moment, nothingHeld, seenAt } from './moment.ts'
import type { HeldRun, Story } from './story.ts'
import { formatElement, heldWords, ranksIn } from './words.ts'

/** Max number of ranks side by side in a cell; more stand in rows. */
const sideBySide = 8

/** One row a rank, one cell a chunk: whose contributions it holds, and its numbers where they are few. */
export function HeldRows({ story, moment }: { story: Story; moment: Moment }) {
  const { settings, held, numbers, chunks } = story
  const size = settings.ranks
  const { ms, arrivals } = moment
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
                />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      <p class="quiet">
        Each field of a block is one rank's contribution,{' '}
        {size > sideBySide ? 'row by row' : 'from left to right'} in rank order. A block without
        gaps holds the sum of all.
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
}

/** Drawn again only when it has changed. */
class HeldCell extends Component<CellProps> {
  override shouldComponentUpdate(next: CellProps): boolean {
    const { runs, numbers, isNew, isWrong, size } = this.props
    return (
      next.runs !== runs ||
      next.numbers !== numbers ||
      next.isNew !== isNew ||
      next.isWrong !== isWrong ||
      next.size !== size
    )
  }

  override render({ size, runs, numbers, isNew, isWrong }: CellProps) {
    const isWhole =
      runs.length > 0 && runs.every(({ ranks }) => ranksIn(ranks, size).length === size)
    return (
      <td data-new={isNew} data-whole={isWhole} data-wrong={isWhole && isWrong}>
        <svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">
          <path class="all" d={fields(runs, size, null)} />
          {hues.slice(0, size).map((hue) => (
            <path key={hue} class="some" style={hueOf(hue)} d={fields(runs, size, hue)} />
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

const hues = Array.from({ length: hueCount }, (_, at) => at)

/** The fields of the ranks of one colour that are in it; for null, of the parts that have all ranks, each without gaps. In a square of 100. */
function fields(runs: readonly HeldRun[], size: number, hue: number | null): string {
  const columns = size > sideBySide ? Math.ceil(Math.sqrt(size)) : size
  const rows = Math.ceil(size / columns)
  let d = ''
  let begin = 0
  for (const { end, ranks } of runs) {
    const left = 100 * begin
    const width = 100 * (end - begin)
    begin = end
    const held = ranksIn(ranks, size)
    const isAll = held.length === size
    if (isAll !== (hue === null)) continue
    if (isAll) {
      d += `M${left} 0h${width}v100h${-width}z`
      continue
    }
    const [w, h] = [width / columns, 100 / rows]
    for (const rank of held) {
      if (rank % hueCount !== hue) continue
      const x = left + w * (rank % columns) + 0.08 * w
      const y = h * Math.floor(rank / columns) + 0.08 * h
      d += `M${x} ${y}h${0.84 * w}v${0.84 * h}h${-0.84 * w}z`
    }
  }
  return d
}
