import {
  type ChildProcess,
  type ExecFileSyncOptionsWithStringEncoding,
  execFileSync,
  spawn,
} from 'node:child_process'
import { chmodSync, existsSync, readdirSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { messageOf } from '../../../src/util/errors.ts'
import { cleanUp } from './clean-up.ts'

/**
 * Two machines and what lies between them, as network namespaces of this kernel:
 *
 *   alpha 10.77.1.2 ---- 10.77.1.1 between 10.77.2.1 ---- 10.77.2.2 beta
 *
 * `between` routes, as the network does: all, all but some packets, or one TCP port alone, as a firewall may.
 */

export const addresses = {
  alpha: '10.77.1.2',
  beta: '10.77.2.2',
  /** Of `between`, on the side of each. */
  nextToAlpha: '10.77.1.1',
  nextToBeta: '10.77.2.1',
} as const

/** Rules for a policy of `drop`: what goes to one TCP port and back passes, the rest is counted. */
export const onlyPort = (port: number): string[] => [
  `tcp dport ${port} accept`,
  `tcp sport ${port} accept`,
  'counter',
]

export type Place = 'alpha' | 'beta' | 'between'
const places: readonly Place[] = ['alpha', 'beta', 'between']

/** So that the next run may know whose they are. */
const prefix = 'tabring-net'

let made = 0

export class Networks {
  readonly #number = made++
  /** Ends all processes in the namespaces, and the namespaces. */
  readonly close = cleanUp(() => {
    for (const place of places) remove(this.#name(place))
  })
  readonly #name = (place: Place) => `${prefix}-${process.pid}-${this.#number}-${place}`

  /** errors: where the kernel, the rights or the tools are missing, by name. */
  constructor() {
    checkTools()
    removeStale()
    try {
      this.#make()
    } catch (thrown) {
      this.close()
      throw new Error(
        `network namespaces: expected this machine to make them, got: ${messageOf(thrown).trim()}. The tests of tests/all/net need Linux and root with CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --privileged).`,
      )
    }
  }

  #make(): void {
    for (const place of places) {
      ip('netns', 'add', this.#name(place))
      this.ip(place, 'link', 'set', 'lo', 'up')
    }
    for (const [place, address, router] of [
      ['alpha', addresses.alpha, addresses.nextToAlpha],
      ['beta', addresses.beta, addresses.nextToBeta],
    ] as const) {
      const peer = ['peer', 'name', `to-${place}`, 'netns', this.#name('between')]
      this.ip(place, 'link', 'add', 'eth0', 'type', 'veth', ...peer)
      this.ip(place, 'addr', 'add', `${address}/24`, 'dev', 'eth0')
      this.ip('between', 'addr', 'add', `${router}/24`, 'dev', `to-${place}`)
      this.ip(place, 'link', 'set', 'eth0', 'up')
      this.ip('between', 'link', 'set', `to-${place}`, 'up')
      this.ip(place, 'route', 'add', 'default', 'via', router)
    }
    this.run('between', 'sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward')
  }

  ip(place: Place, ...args: readonly string[]): void {
    ip('-n', this.#name(place), ...args)
  }

  /** Runs a program to its end; returns what it has written. errors: with what it wrote to standard error, if it fails. */
  run(place: Place, ...argv: readonly string[]): string {
    return execFileSync('ip', ['netns', 'exec', this.#name(place), ...argv], execOptions)
  }

  /** Starts a program on one of the machines, under its name. It does not outlive the networks. */
  start(
    place: Place,
    argv: readonly string[],
    options: { cwd?: string; env?: Record<string, string | undefined> } = {},
  ): ChildProcess {
    const named = ['unshare', '--uts', 'sh', '-c', 'hostname "$0" && exec "$@"', place, ...argv]
    return spawn('ip', ['netns', 'exec', this.#name(place), ...named], {
      stdio: ['ignore', 'pipe', 'pipe'],
      ...options,
      env: { ...process.env, ...options.env },
    })
  }

  /**
   * Writes a program into `folder` that runs `program` on one of the machines, for who starts it by its path alone; returns that path. What it
   * starts ends with the networks.
   */
  programOn(place: Place, program: string, folder: string): string {
    const path = join(folder, `${place}-${basename(program)}`)
    writeFileSync(path, `#!/bin/sh\nexec ip netns exec ${this.#name(place)} '${program}' "$@"\n`)
    chmodSync(path, 0o755)
    return path
  }

  /** What `between` lets through: `rules` are those of nftables' forward chain, of which the last word is `policy`. */
  setRules(policy: 'accept' | 'drop', ...rules: readonly string[]): void {
    const chain = [`type filter hook forward priority 0; policy ${policy};`, ...rules].join('\n')
    const table = `table ip tabring {\nchain forward {\n${chain}\n}\n}`
    this.run('between', 'nft', 'flush', 'ruleset')
    this.run('between', 'nft', table)
  }

  /** How many packets the rules with a counter have seen. */
  countPackets(): number {
    const counters = this.run('between', 'nft', 'list', 'ruleset').matchAll(
      /counter packets (\d+)/g,
    )
    return [...counters].reduce((sum, [, packets]) => sum + Number(packets), 0)
  }
}

const execOptions: ExecFileSyncOptionsWithStringEncoding = {
  encoding: 'utf8',
  timeout: 20_000,
  stdio: ['ignore', 'pipe', 'pipe'],
}

function ip(...args: readonly string[]): string {
  return execFileSync('ip', args, execOptions)
}

function checkTools(): void {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) {
    const who = process.platform === 'linux' ? `user ${process.getuid?.()}` : process.platform
    throw new Error(
      `network namespaces: expected Linux and root, got ${who}. Run npm run test:all as root on Linux; npm test needs neither.`,
    )
  }
  const packages = { ip: 'iproute2', nft: 'nftables', turnserver: 'coturn', unshare: 'util-linux' }
  // Where Debian keeps them, and a root without a login's PATH does not look.
  process.env.PATH = `${process.env.PATH}:/usr/sbin:/sbin`
  const folders = process.env.PATH.split(':')
  for (const [program, name] of Object.entries(packages)) {
    if (folders.some((folder) => existsSync(`${folder}/${program}`))) continue
    throw new Error(
      `network namespaces: expected the program ${program}, got none. Run: apt-get install ${name}`,
    )
  }
}

/** Of runs that were killed: those whose process is no more. */
function removeStale(): void {
  if (!existsSync('/run/netns')) return
  for (const name of readdirSync('/run/netns')) {
    const [, id] = new RegExp(`^${prefix}-(\\d+)-`).exec(name) ?? []
    if (id !== undefined && !existsSync(`/proc/${id}`)) remove(name)
  }
}

function remove(name: string): void {
  if (!existsSync(`/run/netns/${name}`)) return
  // Again and again: what is being ended may just have started another.
  for (let tries = 0; tries < 50; tries++) {
    const ids = ip('netns', 'pids', name).split('\n').filter(Boolean)
    if (ids.length === 0) break
    for (const id of ids) {
      try {
        process.kill(Number(id), 'SIGKILL')
      } catch {
        // It has ended already.
      }
    }
  }
  ip('netns', 'delete', name)
}
