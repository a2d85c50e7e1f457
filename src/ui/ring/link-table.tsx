import { useState } from 'preact/hooks'
import { formatBytes } from '../parts/format.ts'

/** Bytes/s from each rank (row) to each other (column); drawn while it is unfolded. */
export function LinkTable({ rates }: { rates: readonly (readonly number[])[] }) {
  const [isOpen, setOpen] = useState(false)
  const ranks = rates.map((_, rank) => rank)
  return (
    <details class="link-table" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Every link in numbers</summary>
      {isOpen && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys
        <section class="scrolls" tabIndex={0} aria-label="Rates of every link">
          <table class="runs">
            <caption>Bytes/s from the row's rank to the column's</caption>
            <thead>
              <tr>
                <td />
                {ranks.map((rank) => (
                  <th key={rank} scope="col" class="number">
                    {rank}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rates.map((row, from) => (
                // Ranks never change places within a run.
                <tr key={from}>
                  <th scope="row">{from}</th>
                  {row.map((rate, to) => (
                    <td key={to} class="number">
                      {from === to ? '' : formatBytes(rate)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </details>
  )
}
