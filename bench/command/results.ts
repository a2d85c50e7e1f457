import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { today } from './machine.ts'
import { note } from './note.ts'

export interface Results {
  /** A Markdown text with the tables, for people. */
  report: string
  /** What stands behind the report, an object a line. */
  rows?: readonly unknown[]
  /** Stands behind the date in the report's file: the browser, before it the adapter where results depend on it, behind it the part that was measured. */
  nameParts: readonly string[]
  /** Stands behind the date in the file's first line. */
  title?: string | undefined
}

/** Prints the report, or with `json` the rows, and with `save` writes both to bench/results/. */
export async function publish(
  { report, rows = [], nameParts, title }: Results,
  { json = false, save }: { json?: boolean; save: boolean },
): Promise<void> {
  const lines = rows.map((row) => JSON.stringify(row)).join('\n')
  process.stdout.write(json ? `${lines}\n` : report)
  if (!save) return
  const folder = join(import.meta.dirname, '../results')
  await mkdir(folder, { recursive: true })
  const date = today()
  const file = join(folder, `${[date, ...nameParts.map(plain)].join('-')}.md`)
  const heading = title ? `${date}: ${title}` : date
  const behind = lines ? `\n\`\`\`json\n${lines}\n\`\`\`\n` : ''
  await writeFile(file, `# ${heading}\n\n${report}${behind}`)
  note(`saved ${file}`)
}

const plain = (text: string): string => text.toLowerCase().replace(/[^a-z0-9.]+/g, '-')
