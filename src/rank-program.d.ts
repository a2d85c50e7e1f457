/** The user's training module, as `node/launch/build-program.ts` finds it. */
declare module 'virtual:tabring-program' {
  const program: ((context: { env: object; args: readonly string[] }) => unknown) | undefined
  export default program
}
