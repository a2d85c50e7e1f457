import { printAsNode } from './distributed/launcher/node-console.ts'
import { type InjectedEnvironment, injectedName } from './util/injected.ts'

/** Comes before all other modules of a rank's page and of each of its workers: `tabring run` puts it there. */

const surroundings = globalThis as {
  [injectedName]?: InjectedEnvironment
  __tabringProcessEnv?: Readonly<Record<string, string>>
}
surroundings.__tabringProcessEnv = surroundings[injectedName]?.variables ?? {}
printAsNode(console)
