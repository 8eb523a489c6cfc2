import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Properties;
import org.apache.hadoop.minikdc.MiniKdc;
import org.apache.kerby.kerberos.kerb.client.KrbClient;

/**
 * A KDC of the realm EXAMPLE.COM, in memory.
 *
 * <p>Arguments: folder, port. It says `ready`, then answers each line of standard input with
 * `done`, or `failed` and why. The end of the input ends it. Lines:
 *
 * <ul>
 *   <li>`keytab FILE PRINCIPAL`: makes a principal, and writes its keys.
 *   <li>`ticket FILE PRINCIPAL KEYTAB`: what kinit does, into a ticket cache.
 * </ul>
 */
public class Kdc {
    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // whatever Kerby prints is for the log
        Properties conf = MiniKdc.createConf();
        conf.setProperty(MiniKdc.KDC_PORT, args[1]);
        MiniKdc kdc = new MiniKdc(conf, new File(args[0]));
        kdc.start();
        answers.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                carryOut(kdc, line.split(" "));
                answers.println("done");
            } catch (Exception error) {
                answers.println("failed " + error.toString().replace('\n', ' '));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void carryOut(MiniKdc kdc, String[] words) throws Exception {
        File file = new File(words[1]);
        switch (words[0]) {
            case "keytab" -> kdc.createPrincipal(file, words[2]);
            case "ticket" -> {
                KrbClient client = new KrbClient(kdc.getKrb5conf().getParentFile());
                client.init();
                client.storeTicket(client.requestTgt(words[2], new File(words[3])), file);
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }
}
