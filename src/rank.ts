import { endsGroup, nextGroupName } from './distributed/launcher/next-group.ts'
import { endName, type RankEnd } from './distributed/launcher/rank-end.ts'
import { args, env } from './distributed/rendezvous/env.ts'
import { stackOf } from './util/errors.ts'

/**
 * The page of a rank of `tabring run`: it runs the user's module and reports to the launcher how that ended.
 *
 * The launcher builds it around the module, which it calls `virtual:tabring-program`.
 */

let hasEnded = false
function end(words: RankEnd): void {
  if (hasEnded) return
  hasEnded = true
  const { [endName]: send } = globalThis as unknown as { [endName]: (json: string) => void }
  send(JSON.stringify(words))
}

function fail(thrown: unknown): void {
  end({ isOk: false, code: codeOf(thrown), stack: stackOf(thrown) })
}

const codeOf = (thrown: unknown): string =>
  thrown instanceof Error && 'code' in thrown ? String(thrown.code) : ''

addEventListener('error', ({ error }) => {
  // A complaint of the browser's own, such as one about ResizeObserver, has no error in it.
  if (error !== null && error !== undefined) fail(error)
})
addEventListener('unhandledrejection', (event) => {
  const { reason } = event
  // Each step that is under way when the group of an elastic run ends rejects, also where the program awaits another one.
  if (nextGroupName in globalThis && endsGroup(codeOf(reason))) event.preventDefault()
  else fail(reason)
})

try {
  const { default: main } = await import('virtual:tabring-program')
  if (typeof main === 'function') await main({ env, args })
  end({ isOk: true })
} catch (thrown) {
  fail(thrown)
}
