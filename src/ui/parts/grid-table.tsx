import type { ComponentChildren } from 'preact'
import { markdownTable } from '../../util/markdown.ts'
import { Panel } from './panel.tsx'

interface GridTableProps {
  readonly id: string
  readonly title: string
  readonly aside?: string
  readonly heads: readonly string[]
  /** Cells in the order of the heads; numbers stand to the right. */
  readonly rows: readonly (readonly ComponentChildren[])[]
}

/** A table that narrow screens wrap into: texts break, numbers do not. */
export function GridTable({ id, title, aside, heads, rows }: GridTableProps) {
  return (
    <Panel id={id} title={title} aside={aside}>
      <table class="grid-table">
        <thead>
          <tr>
            {heads.map((head) => (
              <th key={head} scope="col">
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((cells) => (
            <tr key={String(cells[0])}>
              {cells.map((cell, at) => (
                <td key={heads[at]} data-is={at === 0 ? 'name' : typeof cell}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  )
}

/** A Markdown table under a line that says where it was measured. */
export const toMarkdown = (
  place: string,
  heads: readonly string[],
  rows: readonly (readonly (string | number)[])[],
): string => `${place}\n\n${markdownTable(heads, rows)}`
