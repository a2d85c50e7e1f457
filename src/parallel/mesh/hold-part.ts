/**
 * Makes a property of a module hold what `get` gives: this rank's part of a parameter, and in forward what stands for the whole.
 *
 * What is set takes its place, as in a module that is not divided: steps that were compiled before refuse to run, on all ranks.
 */
export function holdPart(module: object, name: string, get: () => unknown): void {
  const own = { enumerable: true, configurable: true }
  const set = (value: unknown) =>
    void Object.defineProperty(module, name, { ...own, value, writable: true })
  Object.defineProperty(module, name, { ...own, get, set })
}
