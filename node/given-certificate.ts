import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { createSecureContext } from 'node:tls'
import { messageOf, TabringError } from '../src/util/errors.ts'

/** A certificate of the person's own, with its key, as PEM. */
export interface GivenCertificate {
  cert: string
  key: string
  /** The DNS names that it is for. */
  names: string[]
}

/**
 * Reads the files of `--cert` and `--key`; null without them.
 *
 * errors: `config.invalid`, naming the flag, and showing nothing of the key.
 */
export async function givenCertificate(
  { cert: certFile, key: keyFile }: { cert?: string; key?: string },
  nowMs = Date.now(),
): Promise<GivenCertificate | null> {
  if (certFile === undefined && keyFile === undefined) return null
  if (certFile === undefined) throw invalid('--key', 'needs --cert. Name the certificate')
  if (keyFile === undefined) throw invalid('--cert', 'needs --key. Name the key of the certificate')
  const [cert, key] = await Promise.all([read('--cert', certFile), read('--key', keyFile)])
  let first: X509Certificate
  try {
    first = new X509Certificate(cert)
  } catch {
    throw invalid('--cert', `expected a certificate as PEM in ${certFile}. Name the full chain`)
  }
  if (Date.parse(first.validTo) < nowMs) {
    throw invalid('--cert', `${certFile} has expired on ${first.validTo}. Renew it`)
  }
  try {
    createSecureContext({ cert, key })
  } catch {
    throw invalid(
      '--key',
      `expected the key of ${certFile} as PEM, without a passphrase, in ${keyFile}. Name the right one`,
    )
  }
  return { cert, key, names: namesOf(first) }
}

const namesOf = ({ subjectAltName = '' }: X509Certificate): string[] =>
  [...subjectAltName.matchAll(/DNS:([^,\s"]+)/g)].map(([, name]) => name.toLowerCase())

async function read(where: string, path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8')
  } catch (thrown) {
    throw invalid(where, `cannot read ${path}: ${messageOf(thrown)}. Correct the path`)
  }
}

function invalid(where: string, problem: string): TabringError {
  return new TabringError('config.invalid', `${where}: ${problem}.`)
}
