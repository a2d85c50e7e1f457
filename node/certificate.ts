import { X509Certificate } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { homedir, hostname, networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { generate } from 'selfsigned'
import { messageOf, TabringError } from '../src/util/errors.ts'
import { makeFolder } from './make-folder.ts'

export interface Certificate {
  cert: string
  key: string
  /** Where it is kept; a browser's exception for it lasts as long as the files. */
  folder: string
  isNew: boolean
}

const dayMs = 24 * 60 * 60 * 1000
/** Browsers refuse leaf certificates that run longer than 398 days. */
const lifeDays = 397
/** A certificate with less than this left is replaced. */
const renewDays = 30

/** This machine's addresses in its networks, IPv4 first, without loopback and link-local ones. */
export function lanAddresses(): string[] {
  const all = Object.values(networkInterfaces()).flatMap((list) => list ?? [])
  const outside = all.filter((one) => !one.internal && !/^fe80:/i.test(one.address))
  return [
    ...outside.filter((one) => one.family === 'IPv4'),
    ...outside.filter((one) => one.family === 'IPv6'),
  ].map((one) => one.address)
}

/** This machine's name in its networks, as far as it has one. */
export function hostNames(): string[] {
  const name = hostname().toLowerCase()
  if (!/^[a-z0-9.-]+$/.test(name)) return []
  return [name, ...(name.includes('.') ? [] : [`${name}.local`])]
}

/** The names under which this machine is opened: localhost, its hostname, its IPv4 addresses, and `extra`. */
export function ownNames(
  extra: readonly string[] = [],
  addresses: readonly string[] = lanAddresses(),
): string[] {
  const steady = addresses.filter((address) => !address.includes(':'))
  return [...new Set(['localhost', '127.0.0.1', '::1', ...hostNames(), ...steady, ...extra])]
}

/**
 * A self-signed certificate for this machine: the kept one while it is valid and covers `names`, else a new one, which
 * covers `alsoNames` too. Those are all addresses of now: systems change IPv6 ones daily, and with each new certificate
 * every browser's exception would be lost.
 *
 * Kept in `.tabring/` under the working folder, or under the home folder where that cannot be written.
 * errors: `file.unwritable` when neither can.
 */
export async function ownCertificate(
  options: {
    names?: readonly string[]
    alsoNames?: readonly string[]
    folders?: readonly string[]
    nowMs?: number
  } = {},
): Promise<Certificate> {
  const names = options.names ?? ownNames()
  const alsoNames = options.alsoNames ?? lanAddresses()
  const folders = options.folders ?? [join(process.cwd(), '.tabring'), join(homedir(), '.tabring')]
  const nowMs = options.nowMs ?? Date.now()
  for (const folder of folders) {
    const kept = await readKept(folder)
    if (kept && isGood(kept.cert, names, nowMs)) return { ...kept, folder, isNew: false }
  }
  const made = await make([...new Set([...names, ...alsoNames])], nowMs)
  const failures: string[] = []
  for (const folder of folders) {
    try {
      await makeFolder(folder, 0o700)
      // The key is no part of the project around it.
      await writeFile(join(folder, '.gitignore'), '*\n')
      await writeFile(join(folder, 'key.pem'), made.key, { mode: 0o600 })
      await writeFile(join(folder, 'cert.pem'), made.cert)
      return { ...made, folder, isNew: true }
    } catch (thrown) {
      failures.push(messageOf(thrown))
    }
  }
  throw new TabringError(
    'file.unwritable',
    `certificate: there is no folder to store it in (${failures.join('; ')}). Run in a folder that you may write to.`,
  )
}

async function readKept(folder: string): Promise<{ cert: string; key: string } | null> {
  try {
    const [cert, key] = await Promise.all([
      readFile(join(folder, 'cert.pem'), 'utf8'),
      readFile(join(folder, 'key.pem'), 'utf8'),
    ])
    return { cert, key }
  } catch {
    return null // none yet, or unreadable: a new one is made
  }
}

/** True when `cert` is valid for another `renewDays` and covers all `names`. */
export function isGood(cert: string, names: readonly string[], nowMs: number): boolean {
  let parsed: X509Certificate
  try {
    parsed = new X509Certificate(cert)
  } catch {
    return false // a broken file
  }
  if (Date.parse(parsed.validFrom) > nowMs) return false
  if (Date.parse(parsed.validTo) < nowMs + renewDays * dayMs) return false
  return names.every((name) =>
    isAddress(name) ? parsed.checkIP(name) !== undefined : parsed.checkHost(name) !== undefined,
  )
}

const isAddress = (name: string) => name.includes(':') || /^[\d.]+$/.test(name)

async function make(
  names: readonly string[],
  nowMs: number,
): Promise<{ cert: string; key: string }> {
  const altNames = names.map((name) =>
    isAddress(name) ? ({ type: 7, ip: name } as const) : ({ type: 2, value: name } as const),
  )
  const pems = await generate([{ name: 'commonName', value: 'Tabring on this machine' }], {
    keyType: 'ec',
    algorithm: 'sha256',
    // An hour back: clocks of other machines differ.
    notBeforeDate: new Date(nowMs - 60 * 60 * 1000),
    notAfterDate: new Date(nowMs + (lifeDays - 1) * dayMs),
    extensions: [
      { name: 'basicConstraints', cA: false, critical: true },
      { name: 'keyUsage', digitalSignature: true, critical: true },
      { name: 'extKeyUsage', serverAuth: true },
      { name: 'subjectAltName', altNames },
    ],
  })
  return { cert: pems.cert, key: pems.private }
}
