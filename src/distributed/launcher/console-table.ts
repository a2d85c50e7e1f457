import { inspect } from 'node-inspect-extracted'

const index = '(index)'
const values = 'Values'

const isThing = (value: unknown): value is object =>
  (typeof value === 'object' && value !== null) || typeof value === 'function'

/** A value in one cell: as Node has it, with its own fields alone where it has few. */
function cellOf(value: unknown): string {
  const hasMany = isThing(value) && !Array.isArray(value) && Object.keys(value).length > 2
  return inspect(value, { depth: hasMany ? -1 : 0, maxArrayLength: 3, breakLength: Infinity })
}

/** Columns by their heads, in order. */
function columnsOf(
  data: object,
  properties?: readonly string[],
): [head: string, cells: string[]][] {
  if (data instanceof Map || data instanceof Set) {
    const entries = [...data]
    const own: [string, string[]][] =
      data instanceof Map
        ? [
            ['Key', entries.map(([key]) => cellOf(key))],
            [values, entries.map(([, value]) => cellOf(value))],
          ]
        : [[values, entries.map(cellOf)]]
    return [['(iteration index)', entries.map((_, i) => String(i))], ...own]
  }
  const rows = Object.entries(data)
  const columns = new Map<string, string[]>()
  const plain: string[] = []
  rows.forEach(([, row], i) => {
    if (!isThing(row)) plain[i] = cellOf(row)
    else
      for (const key of properties ?? Object.keys(row)) {
        const column = columns.get(key) ?? []
        column[i] = Object.hasOwn(row, key) ? cellOf(row[key as keyof typeof row]) : ''
        columns.set(key, column)
      }
  })
  return [
    [index, rows.map(([key]) => key)],
    ...columns,
    ...(plain.length > 0 ? [[values, plain] as [string, string[]]] : []),
  ]
}

/** The lines that Node's `console.table` prints of an object. */
export function tableText(data: object, properties?: readonly string[]): string {
  const columns = columnsOf(data, properties)
  const count = Math.max(...columns.map(([, cells]) => cells.length))
  const padded = columns.map(([head, cells]) => {
    const texts = [head, ...Array.from({ length: count }, (_, i) => cells[i] ?? '')]
    const width = Math.max(...texts.map((text) => text.length))
    return texts.map((text) => text.padEnd(width))
  })
  const rule = (left: string, middle: string, right: string) =>
    left + padded.map(([head]) => '─'.repeat(head.length + 2)).join(middle) + right
  const row = (i: number) => `│ ${padded.map((cells) => cells[i]).join(' │ ')} │`
  return [
    rule('┌', '┬', '┐'),
    row(0),
    rule('├', '┼', '┤'),
    ...Array.from({ length: count }, (_, i) => row(i + 1)),
    rule('└', '┴', '┘'),
  ].join('\n')
}
