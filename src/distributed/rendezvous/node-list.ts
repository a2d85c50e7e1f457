import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { checkText } from '../../util/options.ts'

/** No cluster has more; a list that names more is a slip of the keyboard. */
const maxNodes = 65_536

/**
 * Returns the host names of a Slurm node list, in order: `a[01-03,07],b5` gives a01, a02, a03, a07, b5.
 *
 * Grammar: names separated by commas; a name may contain any number of brackets with numbers and ranges separated by commas (in
 * `n[1-2]c[3,5]` the last bracket changes fastest). A range keeps the digits of its lower end: `[08-10]` gives 08, 09, 10.
 * errors: `config.invalid` with the position, from 1, of the fault: a nested or unclosed bracket, a missing number, a descending range, an
 * empty name.
 */
export function expandNodeList(list: string): string[] {
  checkText('expandNodeList', 'list', list)
  const nodes: string[] = []
  let at = 0

  const fail = (position: number, expected: string): never => {
    const found = position < list.length ? `"${clipped(list[position])}"` : 'the end'
    throw new TabringError(
      'config.invalid',
      `node list: expected ${expected} at character ${position + 1} of "${clipped(list)}", got ${found}. Slurm writes lists like a[01-03,07],b5.`,
    )
  }

  /** The digits from here on. */
  const number = (): string => {
    const begin = at
    while (at < list.length && /\d/.test(list[at])) at++
    return at > begin ? list.slice(begin, at) : fail(begin, 'a number')
  }

  /** From behind `[` to behind `]`. */
  const bracket = (begin: number): string[] => {
    const numbers: string[] = []
    for (;;) {
      const position = at
      if (list[at] === '[') fail(at, 'a number, since brackets cannot nest,')
      const low = number()
      let high = low
      if (list[at] === '-') {
        at++
        high = number()
      }
      const count = Number(high) - Number(low) + 1
      if (count < 1) fail(position, `an ascending range, not ${low}-${high},`)
      if (numbers.length + count > maxNodes) fail(position, `at most ${maxNodes} nodes`)
      for (let i = 0; i < count; i++) {
        numbers.push(String(Number(low) + i).padStart(low.length, '0'))
      }
      if (list[at] === ',') at++
      else if (list[at] === ']') {
        at++
        return numbers
      } else if (at === list.length) fail(begin, 'a closing "]" for the bracket that opens')
      else fail(at, '"," or "]"')
    }
  }

  /** One name with its brackets. */
  const name = (): string[] => {
    let made = ['']
    const begin = at
    while (at < list.length && list[at] !== ',') {
      if (list[at] === '[') {
        at++
        const numbers = bracket(at - 1)
        if (made.length * numbers.length > maxNodes) fail(begin, `at most ${maxNodes} nodes`)
        made = made.flatMap((head) => numbers.map((one) => head + one))
      } else if (/[\w.-]/.test(list[at])) {
        const text = /[\w.-]+/y
        text.lastIndex = at
        const [found] = text.exec(list)!
        at += found.length
        made = made.map((head) => head + found)
      } else fail(at, 'a letter, a digit, "-", ".", "_", "[" or ","')
    }
    if (at === begin) fail(at, 'a name')
    return made
  }

  for (;;) {
    nodes.push(...name())
    if (nodes.length > maxNodes) fail(0, `at most ${maxNodes} nodes`)
    if (at === list.length) return nodes
    at++
  }
}
