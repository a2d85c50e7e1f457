import { format, inspect } from 'node-inspect-extracted'
import { tableText } from './console-table.ts'

type Print = (...args: unknown[]) => void

/**
 * Makes `console` print the text that Node's prints of the same values. The launcher gets texts only, and a browser's own are
 * short: `Float32Array(3)` without the numbers.
 *
 * A text is made at the call, so that what changes later does not show.
 */
export function printAsNode(console: Console): void {
  const own = { ...console }
  let indent = ''
  const print = (method: Print, text: string) => method.call(console, text.replace(/^/gm, indent))
  const printed = (method: Print) => {
    const act: Print = (...args) => print(method, format(...args))
    return act
  }
  const table = (data: unknown, properties?: readonly string[]) =>
    print(own.log, typeof data === 'object' && data ? tableText(data, properties) : format(data))
  const group: Print = (...label) => {
    if (label.length > 0) print(own.group, format(...label))
    indent += '  '
  }
  Object.assign(console, {
    log: printed(own.log),
    info: printed(own.info),
    debug: printed(own.debug),
    warn: printed(own.warn),
    error: printed(own.error),
    dirxml: printed(own.log),
    dir: (value: unknown, options?: object) =>
      print(own.log, inspect(value, { customInspect: false, ...options })),
    table,
    trace: (...args: unknown[]) => {
      const lines = new Error().stack?.split('\n') ?? []
      // The first may be the error's name; that of a frame begins with `    at `, or has an @ in Firefox and Safari. The first frame is this function.
      const stack = lines.filter((line) => /^ +at |@/.test(line)).slice(1)
      const head = args.length > 0 ? `Trace: ${format(...args)}` : 'Trace'
      print(own.trace, [head, ...stack].join('\n'))
    },
    assert: (isTrue?: unknown, ...args: unknown[]) => {
      if (isTrue) return
      print(
        own.error,
        ['Assertion failed', ...(args.length > 0 ? [format(...args)] : [])].join(': '),
      )
    },
    group,
    groupCollapsed: group,
    groupEnd: () => {
      indent = indent.slice(2)
      own.groupEnd.call(console)
    },
  })
}
